package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/embedded"
	"github.com/jobthrottle/jobthrottle/internal/strictapi"
	"github.com/jobthrottle/jobthrottle/producer"
	"github.com/jobthrottle/jobthrottle/worker"
)

// The demo: eight bursts, by three workers, none of which could keep the limit alone. Redis and all
// workers are one process here, and on a small machine they keep each other waiting.
// So the guard is the longest that is ever used by default: a request may be that late.
const (
	demoJobs     = 360
	demoLimit    = 50
	demoInterval = time.Second
	demoGuard    = 50 * time.Millisecond
	demoWorkers  = 3
	demoSlots    = 20
	demoQueue    = "default"

	// demoPatience is how long the demo waits at most for jobs to end.
	demoPatience = time.Minute
	demoRedraw   = 100 * time.Millisecond
)

// demoIdeal is the time that the limit requires between the first request and the last.
const demoIdeal = ((demoJobs+demoLimit-1)/demoLimit - 1) * (demoInterval + demoGuard)

// runDemo runs the demo: Redis, a strict API, jobs and the workers. It returns an error if a
// job failed or the API refused a request.
func runDemo(ctx context.Context, asJSON bool, stdout, stderr io.Writer) error {
	show := stdout
	if asJSON {
		show = stderr
	}
	server, err := embedded.Start()
	if err != nil {
		return err
	}
	defer server.Close()
	api, err := strictapi.Spawn(demoLimit, demoInterval)
	if err != nil {
		return err
	}
	defer api.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	fmt.Fprintf(show, "%d jobs for an API that allows %d requests in any %v, on %d workers of %d slots\n\n",
		demoJobs, demoLimit, demoInterval, demoWorkers, demoSlots)
	if err := enqueueDemo(ctx, rdb, api.Addr(), demoJobs); err != nil {
		return err
	}
	err = workDemo(ctx, demoConfig(server.Addr(), api.Addr()), stderr, func(ctx context.Context) error {
		return watchDemo(ctx, rdb, api, newView(show, demoJobs, demoLimit, demoInterval))
	})
	result, resultErr := summarizeDemo(rdb, api)
	if err := errors.Join(err, resultErr); err != nil {
		return err
	}
	fmt.Fprintln(show)
	result.writeText(show)
	if asJSON {
		if err := result.writeJSON(stdout); err != nil {
			return err
		}
	}
	if !result.good() {
		return unfinished(ctx, fmt.Errorf("demo: %d of %d jobs done, %d failed, %d requests refused",
			result.Done, result.Jobs, result.Failed, result.Refused))
	}
	return nil
}

// unfinished is the error after the summary of a demo that did not go well. One that was interrupted needs no more words.
func unfinished(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// demoConfig is the configuration of the demo.
func demoConfig(redisAddr, apiAddr string) *config.Config {
	return demoConfigWith(redisAddr, apiAddr, config.Limit{Rate: fmt.Sprintf("%d/%v", demoLimit, demoInterval), Guard: config.Duration(demoGuard)})
}

// demoConfigWith is the configuration of a demo with this limit.
func demoConfigWith(redisAddr, apiAddr string, limit config.Limit) *config.Config {
	cfg := config.Default()
	cfg.Redis.Addrs = []string{redisAddr}
	cfg.Limits = map[string]config.Limit{"api": limit}
	cfg.Jobs = map[string]config.Job{"http:request": {Limits: []string{"api"}, Hold: "forever"}}
	cfg.Pools = []config.Pool{{Name: "demo", Concurrency: demoSlots, Queues: map[string]int{demoQueue: 1}}}
	cfg.HTTP.AllowHosts = []string{apiAddr}
	cfg.Log.Level = "error"
	return cfg
}

// enqueueDemo adds all jobs before the workers start, so that only the workers' time counts.
func enqueueDemo(ctx context.Context, rdb redis.UniversalClient, apiAddr string, n int) error {
	jobs := producer.New(rdb)
	for i := range n {
		payload, err := json.Marshal(map[string]string{
			"method": "GET",
			"url":    fmt.Sprintf("http://%s/v1/things?job=%d", apiAddr, i+1),
		})
		if err != nil {
			return err
		}
		_, err = jobs.Enqueue(ctx, producer.Job{
			Type:      "http:request",
			Payload:   payload,
			Queue:     demoQueue,
			MaxRetry:  producer.None,
			Retention: time.Hour,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// workDemo runs the workers while watch does, and waits for them.
func workDemo(ctx context.Context, cfg *config.Config, stderr io.Writer, watch func(context.Context) error) error {
	logger, err := newLogger(cfg.Log, stderr)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	for range demoWorkers {
		w, err := worker.New(cfg, logger)
		if err != nil {
			return err
		}
		group.Go(func() error { return w.Run(ctx) })
	}
	group.Go(func() error {
		defer stop()
		return watch(ctx)
	})
	return group.Wait()
}

// watchDemo draws until every job has reached the API and has ended, or until ctx ends.
func watchDemo(ctx context.Context, rdb redis.UniversalClient, api *strictapi.Process, v *view) error {
	ctx, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	redraw := time.NewTicker(demoRedraw)
	defer redraw.Stop()
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	started := time.Now()
	for {
		r, err := api.Report()
		if err != nil {
			return err
		}
		v.draw(time.Since(started), r)
		if len(r.Jobs) == demoJobs { // all have come this far: now ask asynq, which is not cheap
			queue, err := inspector.GetQueueInfo(demoQueue)
			if err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			if queue.Completed+queue.Archived == demoJobs {
				return nil
			}
		}
		select {
		case <-redraw.C:
		case <-ctx.Done():
			return nil // the summary says what is missing
		}
	}
}

// summarizeDemo collects what asynq says about the jobs, and the API about the requests.
func summarizeDemo(rdb redis.UniversalClient, api *strictapi.Process) (summary, error) {
	r, err := api.Report()
	if err != nil {
		return summary{}, err
	}
	queue, err := asynq.NewInspectorFromRedisClient(rdb).GetQueueInfo(demoQueue)
	if err != nil {
		return summary{}, fmt.Errorf("demo: %w", err)
	}
	return summary{
		Jobs:         demoJobs,
		Done:         queue.Completed,
		Failed:       queue.Archived,
		Seconds:      r.Spread.Seconds(),
		IdealSeconds: demoIdeal.Seconds(),
		Limit:        demoLimit,
		IntervalMS:   demoInterval.Milliseconds(),
		Peak:         r.Peak,
		Refused:      r.Refused,
	}, nil
}
