package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/patient"
	"github.com/jobthrottle/jobthrottle/internal/refusal"
	"github.com/jobthrottle/jobthrottle/throttle/replicas"
)

// reach finds out whether Redis answers and the user has the rights that the worker needs. It
// warns about missing rights that jobs do not need. If ctx ends before that, the caller has to close rdb.
func reach(ctx context.Context, cfg *config.Config, rdb redis.UniversalClient, warn func(*RightsError)) error {
	err := patient.Ask(ctx, func(ctx context.Context) error {
		err := rdb.Ping(ctx).Err()
		if err == nil || redis.HasErrorPrefix(err, "NOPERM") {
			err = checkRights(ctx, cfg, rdb, warn)
		}
		return err
	})
	if err == nil {
		return nil
	}
	where := strings.Join(cfg.Redis.Addrs, ", ")
	if _, ok := errors.AsType[*RightsError](err); ok {
		return fmt.Errorf("cannot use Redis at %s: %w", where, err)
	}
	return fmt.Errorf("cannot reach Redis at %s: %w", where, advise(cfg, err))
}

// advise adds to an error what to do about it. It adds nothing to a reply of Redis that says so itself.
func advise(cfg *config.Config, err error) error {
	if does := advice(cfg, err); does != "" {
		return fmt.Errorf("%w; %s", err, does)
	}
	return err
}

// advice says what to do if Redis does not answer as it should; "" if its reply says that itself.
func advice(cfg *config.Config, err error) string {
	_, few := errors.AsType[*replicas.ReplicasError](err)
	switch {
	case refusal.LacksPassword(err):
		return "correct redis.username and redis.password in the configuration" + cfg.UnsetIn("redis.username", "redis.password")
	case redis.HasErrorPrefix(err, "NOPERM"):
		return "grant that to the user of redis.username: docs/redis.md lists what it needs"
	case few:
		return "want as many replicas as redis.wait_replicas says"
	}
	known := refusal.Names{Addrs: "redis.addrs", TLS: "redis.tls"}.Advice(err, cfg.Redis.TLS)
	if _, replied := errors.AsType[redis.Error](err); replied {
		return known
	}
	return cmp.Or(known, "start it (redis-server), correct redis.addrs in the configuration, or try the worker with --embedded") + cfg.UnsetIn("redis.addrs")
}
