package drain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// serveAlone is asynq without any limit: it shows how fast the queue itself is.
func serveAlone(ctx context.Context, addr string, l Load, start func()) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: l.Slots + 10})
	defer rdb.Close()
	return serveAsynq(ctx, rdb, asynq.Config{Concurrency: l.Slots}, func(context.Context, *asynq.Task) error {
		start()
		return nil
	})
}

// limitedError is what a handler of the wiki's recipe returns to be called again later.
type limitedError struct{ retryIn time.Duration }

func (e *limitedError) Error() string { return fmt.Sprintf("rate limited, retry in %v", e.retryIn) }

// wiki is what asynq's wiki recommends under "Rate Limiting": a handler that finds the limit
// used up returns an error that is no failure and says when to retry. The wiki's limiter is one
// of the process (golang.org/x/time/rate). Two servers that share a limit need one in Redis,
// and redis_rate is the usual one. The wiki retries after a random time of up to ten seconds.
// Here the retry is when redis_rate says, which is sooner. polls and delayedPolls are asynq's
// intervals; 0 is its default.
func wiki(polls, delayedPolls time.Duration) serve {
	return func(ctx context.Context, addr string, l Load, start func()) error {
		rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: l.Slots + 10})
		defer rdb.Close()
		config := asynq.Config{Concurrency: l.Slots, TaskCheckInterval: polls, DelayedTaskCheckInterval: delayedPolls}
		return serveWiki(ctx, rdb, config, l, start)
	}
}

// serveWiki runs one server of the recipe.
func serveWiki(ctx context.Context, rdb *redis.Client, config asynq.Config, l Load, start func()) error {
	limiter := redis_rate.NewLimiter(rdb)
	limit := redis_rate.Limit{Rate: int(l.Limit.Permits), Burst: int(l.Limit.Permits), Period: l.Limit.Interval}
	config.IsFailure = func(err error) bool {
		_, limited := errors.AsType[*limitedError](err)
		return !limited
	}
	config.RetryDelayFunc = func(n int, err error, task *asynq.Task) time.Duration {
		if limited, ok := errors.AsType[*limitedError](err); ok {
			return limited.retryIn
		}
		return asynq.DefaultRetryDelayFunc(n, err, task)
	}
	return serveAsynq(ctx, rdb, config, func(ctx context.Context, _ *asynq.Task) error {
		r, err := limiter.Allow(ctx, l.Limit.Name, limit)
		if err != nil {
			return err
		}
		if r.Allowed == 0 {
			return &limitedError{r.RetryAfter}
		}
		start()
		return nil
	})
}

// serveAsynq runs a server until ctx ends.
func serveAsynq(ctx context.Context, rdb *redis.Client, config asynq.Config, handler asynq.HandlerFunc) error {
	config.LogLevel = asynq.FatalLevel
	server := asynq.NewServerFromRedisClient(rdb, config)
	if err := server.Start(handler); err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}
