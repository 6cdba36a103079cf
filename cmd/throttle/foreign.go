package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jobthrottle/jobthrottle/internal/cli"
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
	return &cli.UsageError{Err: &slotsError{name}}
}

// slotsError says that a limit is in flight, and has no rate.
type slotsError struct{ limit string }

func (e *slotsError) Error() string {
	return fmt.Sprintf("limit %q is of how many run at a time: throttle holders shows it, and its number is in_flight of the configuration", e.limit)
}

const changeInFlight = "change in_flight in the configuration and restart the workers"

// wayOut adds to the error for a limit in flight what to do in place of a verb that wants a rate.
func wayOut(verb string, err error) error {
	if _, ok := errors.AsType[*slotsError](err); !ok {
		return err
	}
	switch verb {
	case "pause":
		return fmt.Errorf("%w; pause another limit of its jobs, or their queue", err)
	case "set":
		return fmt.Errorf("%w; %s", err, changeInFlight)
	}
	return err
}
