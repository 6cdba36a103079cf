package asynqlimit_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestRecoveredByAnother: two servers find jobs that waited in a process that died. By the time the second
// one comes to recover them, the first one has done so, and they run, most of them in the second one. They
// run once each, on their last attempt, and none counts as failed.
func TestRecoveredByAnother(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	const jobs = 50
	for i := range jobs {
		s.enqueue("x:limited", fmt.Sprintf("x%02d", i), asynq.MaxRetry(0), asynq.Retention(time.Hour))
	}
	died, err := line.New(s.rdb).Take(t.Context(), "default", time.Now().Add(-time.Hour).Unix(), jobs, false)
	if err != nil || len(died) != jobs {
		t.Fatal(len(died), err)
	}
	const yaml = `
limits: { api: { rate: 1000/1s } }
jobs: { "x:limited": { limits: [api], hold: 100ms } }
`
	finds, goesOn, end := make(chan struct{}, jobs), make(chan struct{}), make(chan struct{})
	var recovered atomic.Int64 // of the second server, so far
	late := s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if !slices.Contains(cmd.Args(), any("listed")) {
			return next(ctx, cmd)
		}
		finds <- struct{}{}
		<-goesOn
		defer recovered.Add(1)
		return next(ctx, cmd)
	})
	handle := func(ctx context.Context, _ *asynq.Task) error {
		select {
		case <-end:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	s.serve(member{name: "second", yaml: yaml, rdb: late, asynq: asynq.Config{Concurrency: jobs}, handle: handle})
	<-finds // it has listed the jobs
	s.serve(member{name: "first", yaml: yaml, asynq: asynq.Config{Concurrency: 1}, handle: handle})
	starts := s.awaitStarts("x", jobs, 10*time.Second)
	close(goesOn)
	s.await(10*time.Second, func() (bool, string) {
		q := s.queue("default")
		return recovered.Load() >= jobs || q.Archived > 0, fmt.Sprintf("%d of %d recovered; %+v", recovered.Load(), jobs, q)
	})
	if q := s.queue("default"); q.Active != jobs || q.Archived != 0 || q.Retry != 0 {
		here := len(slices.DeleteFunc(starts, func(st start) bool { return st.server != "second" }))
		t.Errorf("%d active, %d archived, %d to be retried; %d began in the second server", q.Active, q.Archived, q.Retry, here)
	}
	close(end)
	s.awaitDone("default", 10*time.Second)
	if n := len(s.seen("x")); n != jobs {
		t.Errorf("%d jobs started %d times", jobs, n)
	}
}
