package asynqlimit_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/producer"
	"github.com/jobthrottle/jobthrottle/worker"
)

// serveWorker runs a worker until the returned function is called, or the test ends.
func (s *site) serveWorker(m member) (stop func()) {
	s.t.Helper()
	cfg, err := config.Parse("config.yaml", []byte(m.yaml))
	if err != nil {
		s.t.Fatal(err)
	}
	cfg.ShutdownTimeout = config.Duration(m.asynq.ShutdownTimeout)
	w, err := worker.NewWith(cfg, worker.Options{
		Redis: s.rdb, RetryDelay: m.asynq.RetryDelayFunc,
		Slog: slog.New(slog.NewTextHandler(testWriter{s.t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	w.HandleFunc("x", s.handler(m))
	return s.running(w.Run)
}

// running runs serve until the returned function is called, or the test ends.
func (s *site) running(serve func(context.Context) error) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("it ended with: %v", err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

// TestRetriesOfTheProducer: a job of package producer fails as often as it may, and no more, whatever happens to it before, in
// a worker and in a server with asynqlimit. asynq's own tools show the number that its producer gave.
func TestRetriesOfTheProducer(t *testing.T) {
	t.Parallel()
	const yaml = `
limits: { api: { rate: 1000/1s } }
jobs: { "x:": { limits: [api], hold: 10m } }
`
	failure := errors.New("fails")
	fails := func(context.Context, int) error { return failure }
	ways := []struct {
		name   string
		more   int // starts that are no failures
		handle func(ctx context.Context, start int) error
		pause  time.Duration // of the limit; 0: an hour
		// before the limit has permits, and after the job has started
		before, after func(s *site, restart func())
	}{
		{name: "fails", handle: fails},
		{name: "panics", handle: func(context.Context, int) error { panic("at the handler") }},
		{name: "is put off", handle: fails, before: func(s *site, _ func()) { s.awaitWaiting("default", 1) }},
		{name: "is refused", more: 1, handle: func(_ context.Context, start int) error {
			if start == 1 {
				return asynqlimit.RetryAfter(time.Second)
			}
			return failure
		}},
		{name: "is drained while it is parked", handle: fails, before: func(s *site, restart func()) {
			s.awaitWaiting("default", 1)
			restart()
		}},
		{name: "is drained while it waits", handle: fails, pause: time.Minute, before: func(s *site, restart func()) {
			s.await(10*time.Second, func() (bool, string) {
				n := s.rdb.SCard(t.Context(), "asynq:{default}:jt:room").Val()
				return n == 1, fmt.Sprintf("%d wait; %+v", n, s.queue("default"))
			})
			restart()
		}},
		{name: "is drained while it runs", more: 1, handle: func(ctx context.Context, start int) error {
			if start == 1 {
				<-ctx.Done()
				<-time.After(time.Second) // until after asynq has put it back
			}
			return failure
		}, after: func(_ *site, restart func()) { restart() }},
		{name: "is cancelled", handle: func(ctx context.Context, start int) error {
			if start == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return failure
		}, after: func(s *site, _ func()) {
			s.await(10*time.Second, func() (bool, string) { // a server may not listen yet
				if err := s.inspector.CancelProcessing("job"); err != nil {
					s.t.Error(err)
				}
				info, err := s.inspector.GetTaskInfo("default", "job")
				return err == nil && info.State != asynq.TaskStateActive, fmt.Sprint(info, err)
			})
		}},
	}
	for name, serve := range map[string]func(*site, member) func(){"asynqlimit": (*site).serve, "worker": (*site).serveWorker} {
		for _, way := range ways {
			for retries, maxRetry := range []int{producer.None, 1} {
				t.Run(fmt.Sprintf("%s/%s/%d", name, way.name, retries), func(t *testing.T) {
					t.Parallel()
					s := newSite(t, redistest.Start(t))
					limiter, _ := s.newLimit("api", "1000/1s")
					if err := limiter.Pause(t.Context(), cmp.Or(way.pause, time.Hour)); err != nil {
						t.Fatal(err)
					}
					m := member{yaml: yaml, asynq: asynq.Config{
						ShutdownTimeout: time.Second, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 }, DelayedTaskCheckInterval: time.Second,
					}}
					m.handle = func(ctx context.Context, _ *asynq.Task) error { return way.handle(ctx, len(s.seen("job"))) }
					stop := serve(s, m)
					restart := func() { stop(); stop = serve(s, m) }
					if _, err := producer.New(s.rdb).Enqueue(t.Context(), producer.Job{Type: "x:job", ID: "job", MaxRetry: maxRetry}); err != nil {
						t.Fatal(err)
					}
					if way.before != nil {
						way.before(s, restart)
					}
					if err := limiter.Resume(t.Context()); err != nil {
						t.Fatal(err)
					}
					s.awaitStarts("job", 1, 10*time.Second)
					if way.after != nil {
						way.after(s, restart)
					}
					s.awaitArchived(1, 20*time.Second)
					info, err := s.inspector.GetTaskInfo("default", "job")
					if err != nil {
						t.Fatal(err)
					}
					if info.Retried != retries || info.MaxRetry != retries {
						t.Errorf("archived after %d of %d retries, want %d", info.Retried, info.MaxRetry, retries)
					}
					if n := len(s.seen("job")); n != 1+retries+way.more {
						t.Errorf("it ran %d times, want %d", n, 1+retries+way.more)
					}
				})
			}
		}
	}
}
