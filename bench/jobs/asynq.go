package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/bench/internal/redisserver"
	"github.com/jobthrottle/jobthrottle/bench/internal/wanted"
	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/producer"
)

// besideAsynq runs the same backlog of empty jobs twice: on one plain asynq server, and on one
// whose jobs have limits that never bind, of the fleet and of the process.
const (
	besideAsynq = "asynq alone, and with limits that never bind"
	noOps       = 10_000
	noOpSlots   = 50
)

// What is wanted: the lower end of the interval of the speed, and how many more script calls a job.
const (
	wantedSpeed = 0.95
	wantedCalls = 0.2
)

// compareWithAsynq prints how fast jobs with limits run, as a ratio to asynq's own speed: the
// mean of the pairs, and the lower end of its 95 % interval.
func compareWithAsynq(ctx context.Context, server *redisserver.Server, pairs int, missed *wanted.Missed) error {
	var ratios []float64
	var more float64
	for pair := range pairs {
		var speed, calls [2]float64
		for i := range 2 {
			limited := (i + pair) % 2 // each goes first equally often
			took, used, err := drainNoOps(ctx, server, limited == 1)
			if err != nil {
				return err
			}
			speed[limited], calls[limited] = noOps/took.Seconds(), used
		}
		ratios = append(ratios, speed[1]/speed[0])
		more += (calls[1] - calls[0]) / float64(pairs)
	}
	mean, half := interval95(ratios)
	fmt.Printf("%s: %.3f of asynq's own speed in %d pairs (lower end of the 95 %% interval %.3f), %+.2f script calls a job; wanted: %s, %s\n",
		besideAsynq, mean, pairs, mean-half, more,
		missed.AtLeast(besideAsynq, "lower end", mean-half, wantedSpeed), missed.AtMost(besideAsynq, "calls", more, wantedCalls))
	return nil
}

// interval95 returns the mean, and half the width of its 95 % confidence interval. It uses
// Student's t for 14 degrees of freedom, 2.145, which is nearly the same for any number of
// pairs from ten on.
func interval95(xs []float64) (mean, half float64) {
	var sum, squares float64
	for _, x := range xs {
		sum += x
	}
	mean = sum / float64(len(xs))
	for _, x := range xs {
		squares += (x - mean) * (x - mean)
	}
	if len(xs) < 2 {
		return mean, math.Inf(1)
	}
	return mean, 2.145 * math.Sqrt(squares/float64(len(xs)-1)/float64(len(xs)))
}

// drainNoOps returns how long a server takes from its start to the last of the jobs, and how
// many script calls it needed for each job.
func drainNoOps(ctx context.Context, server *redisserver.Server, limited bool) (time.Duration, float64, error) {
	if err := server.Flush(ctx); err != nil {
		return 0, 0, err
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer rdb.Close()
	jobs := producer.New(rdb).Stream(ctx, ignore)
	for i := range noOps {
		if err := jobs.Add(i+1, producer.Job{Type: "bench:noop", Payload: []byte("{}")}); err != nil {
			return 0, 0, err
		}
	}
	if err := jobs.Close(); err != nil {
		return 0, 0, err
	}
	before, err := server.Usage(ctx)
	if err != nil {
		return 0, 0, err
	}
	var left atomic.Int64
	left.Store(noOps)
	done := make(chan struct{})
	mux := asynq.NewServeMux()
	mux.HandleFunc("bench:noop", func(context.Context, *asynq.Task) error {
		if left.Add(-1) == 0 {
			close(done)
		}
		return nil
	})
	running, stop := context.WithCancel(ctx)
	defer stop()
	began, ended := time.Now(), make(chan error, 1)
	if limited {
		limits, err := asynqlimit.New(rdb, neverBinding(), asynqlimit.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return 0, 0, err
		}
		srv := asynq.NewServerFromRedisClient(limits.Redis(), limits.Configure(asynq.Config{Concurrency: noOpSlots, LogLevel: asynq.FatalLevel}))
		go func() { ended <- limits.Serve(running, srv, mux) }()
	} else {
		srv := asynq.NewServerFromRedisClient(rdb, asynq.Config{Concurrency: noOpSlots, LogLevel: asynq.FatalLevel})
		if err := srv.Start(mux); err != nil {
			return 0, 0, err
		}
		go func() {
			<-running.Done()
			srv.Shutdown()
			ended <- nil
		}()
	}
	select {
	case <-done:
	case err := <-ended:
		return 0, 0, errors.Join(err, ctx.Err())
	}
	took := time.Since(began)
	after, err := server.Usage(ctx)
	stop()
	return took, float64(after.Sub(before).ScriptCalls) / noOps, errors.Join(err, <-ended)
}

func neverBinding() *config.Config {
	cfg := config.Default()
	cfg.Limits = map[string]config.Limit{
		"api":    {Rate: "1000000/1s"},
		"worker": {Rate: "1000000/1s", Type: "per_client"},
	}
	cfg.Jobs = map[string]config.Job{"bench:": {Limits: []string{"api", "worker"}}}
	cfg.Pools = cfg.Pools[:1]
	return cfg
}
