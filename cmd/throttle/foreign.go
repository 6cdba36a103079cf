package main

import (
	"context"
	"fmt"

	"github.com/jobthrottle/jobthrottle/internal/limitname"
)

// unreserved refuses names whose keys belong to asynq or jobthrottle.
func unreserved(name string) error {
	if owner, begin := limitname.Reserved(name); owner != "" {
		return usage("%q is no limit: %s has keys of its own in Redis that begin with %q", name, owner, begin)
	}
	return nil
}

// ours refuses a name whose key in Redis exists and is no limiter. So a wrong name does not
// delete or overwrite other programs' data. A limiter may be broken: it is a hash with a rate,
// whatever else is wrong with it.
func (s *session) ours(ctx context.Context, name string) error {
	kind, err := s.rdb.Type(ctx, name).Result()
	if err != nil {
		return fmt.Errorf("find out what %q is: %w", name, err)
	}
	switch kind {
	case "none":
		return nil
	case "hash":
		rated, err := s.rdb.HExists(ctx, name, "rate").Result()
		if err != nil {
			return fmt.Errorf("find out what %q is: %w", name, err)
		}
		if rated {
			return nil
		}
		if u, err := s.slots(ctx, name); err == nil && u.Limit > 0 {
			return hasSlots(name)
		}
		kind = "hash without a rate"
	}
	return fmt.Errorf("%q is not a limiter: the key in Redis is a %s; use redis-cli if you mean it", name, kind)
}

// hasSlots is the error for a limit in flight where one with a rate is wanted.
func hasSlots(name string) error {
	return usage("limit %q is of how many run at a time: throttle holders shows it, and its number is in_flight of the configuration", name)
}
