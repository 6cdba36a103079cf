package drain

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
	"github.com/jobthrottle/jobthrottle/config"
)

// The names of the servers that have nothing to do, in tables.
const (
	NameIdle      = "jobthrottle"
	NameIdleAsynq = "asynq alone, with its defaults"
	NameIdleEager = "asynq alone, polling as often as jobthrottle"
)

// IdleQueues is how many queues an idle server has.
const IdleQueues = 3

var idleLoad = Load{
	Limit:  fleet.Limit{Name: "idle", Permits: 40, Interval: time.Second},
	Slots:  20,
	Queues: map[string]int{"critical": 6, "default": 3, "low": 1},
}

// IdleWays returns the servers that are watched while they have nothing to do.
func IdleWays() []Way {
	return []Way{
		{NameIdle, func(ctx context.Context, addr string, l Load, start func()) error {
			return serveWorker(ctx, addr, l, start, 0, config.Job{})
		}},
		{NameIdleAsynq, idleAsynq(0, 0)},
		{NameIdleEager, idleAsynq(50*time.Millisecond, time.Second)}, // what package worker sets
	}
}

func idleAsynq(polls, delayedPolls time.Duration) serve {
	return func(ctx context.Context, addr string, l Load, start func()) error {
		rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: l.Slots + 10})
		defer rdb.Close()
		config := asynq.Config{Concurrency: l.Slots, Queues: l.Queues, TaskCheckInterval: polls, DelayedTaskCheckInterval: delayedPolls}
		return serveAsynq(ctx, rdb, config, func(context.Context, *asynq.Task) error {
			start()
			return nil
		})
	}
}

// Idle runs one server, whose queues are empty, for as long as watch runs.
func Idle(ctx context.Context, addr string, way Way, watch func() error) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- way.Serve(serving, addr, idleLoad, func() {}) }()
	err := watch()
	stop()
	return errors.Join(err, <-served)
}
