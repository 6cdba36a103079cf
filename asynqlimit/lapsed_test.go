package asynqlimit_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestCancelledWhileItWaits: asynq cancels jobs that wait for their permits, as an operator asked it to.
// Nothing has failed: the jobs go on waiting, and the program's ErrorHandler does not hear of it.
func TestCancelledWhileItWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	const jobs = 3
	for i := range jobs {
		s.enqueue("x:limited", fmt.Sprint("x", i), asynq.MaxRetry(0), asynq.Retention(time.Hour))
	}
	s.serve(member{yaml: `
limits: { api: { rate: 1/4s } }
jobs: { "x:limited": { limits: [api], hold: 1m } }
`})
	s.awaitStarts("x", 1, 10*time.Second)
	s.await(10*time.Second, func() (bool, string) { // the others wait in the process
		q := s.queue("default")
		return q.Active == jobs-1, fmt.Sprintf("%+v", q)
	})
	for i := range jobs {
		if err := s.inspector.CancelProcessing(fmt.Sprint("x", i)); err != nil {
			t.Fatal(err)
		}
	}
	s.await(10*time.Second, func() (bool, string) { // they have parked
		q := s.queue("default")
		return q.Retry > 0 && q.Failed == 0, fmt.Sprintf("%+v", q)
	})
	s.awaitDone("default", 20*time.Second)
	if n := len(s.seen("x")); n != jobs {
		t.Errorf("%d jobs started %d times", jobs, n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.failures) > 0 {
		t.Errorf("the ErrorHandler saw %v", s.failures)
	}
}

// TestRedisAwayForLongerThanALease: Redis stands still until the leases of jobs that wait in a process
// have lapsed. When it is back, the jobs go on soon, and not when asynq's recoverer comes a minute later. None
// starts without a lease: others may have it by then. Nothing has failed.
func TestRedisAwayForLongerThanALease(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, hold     string
		away, interval time.Duration
		first          bool // it goes away when the first job is taken, before that has asked
		acquires       bool // the handlers get the permits themselves
		nightly        bool
	}{
		{name: "while they ask", hold: "2s", away: 36 * time.Second, interval: 2 * time.Second, first: true},
		{name: "while they wait", hold: "2m", away: 36 * time.Second, interval: 41 * time.Second, nightly: true},
		{name: "while their handlers wait", hold: "2m", away: 36 * time.Second, interval: 41 * time.Second, acquires: true, nightly: true},
		{name: "back when their permits are due", hold: "2m", away: 32 * time.Second, interval: 32500 * time.Millisecond, nightly: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.nightly && !nightly() {
				t.Skip("takes 45 s: set JOBTHROTTLE_NIGHTLY=1")
			}
			server := redistest.New(t)
			s := newSite(t, server.Addr)
			const at = 6
			jobs := 2 * at
			if tt.first {
				jobs = 1
			}
			for i := range jobs {
				s.enqueue("x:limited", fmt.Sprintf("x%02d", i), asynq.MaxRetry(0), asynq.Retention(time.Hour))
			}
			froze := make(chan struct{})
			freeze := sync.OnceFunc(func() { server.Freeze(); close(froze) })
			taking := s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				err := next(ctx, cmd)
				if reply, ok := cmd.(*redis.Cmd); ok && tt.first && len(cmd.Args()) > 6 && cmd.Args()[6] == "asynq:{default}:lease" {
					if tasks, _ := reply.Slice(); len(tasks) > 0 {
						freeze()
					}
				}
				return err
			})
			var ran atomic.Int64
			awaitRan := func(n int, within time.Duration) {
				t.Helper()
				s.await(within, func() (bool, string) {
					return ran.Load() >= int64(n), fmt.Sprintf("%d of %d ran; %+v", ran.Load(), n, s.queue("default"))
				})
			}
			var limits *asynqlimit.Limits
			var opts asynqlimit.Options
			if tt.acquires {
				opts.HandlersAcquire = []string{"x"}
			}
			s.serve(member{yaml: fmt.Sprintf(`
limits: { api: { rate: %d/%v, guard: 500ms } }
jobs: { "x:limited": { limits: [api], hold: %s } }
`, at, tt.interval, tt.hold), asynq: asynq.Config{Concurrency: 4 * at}, rdb: taking, opts: opts, made: func(l *asynqlimit.Limits) { limits = l }, handle: func(ctx context.Context, _ *asynq.Task) error {
				if tt.acquires {
					if err := asynqlimit.Acquire(ctx); err != nil {
						return err
					}
				}
				defer ran.Add(1)
				id, _ := asynq.GetTaskID(ctx)
				ends, err := s.rdb.ZScore(ctx, "asynq:{default}:lease", id).Result()
				if now := time.Now().Unix(); err != nil || float64(now) > ends {
					t.Errorf("%s started at %d, and its lease ended at %.0f, %v", id, now, ends, err)
				}
				return nil
			}})
			if !tt.first {
				awaitRan(at, 10*time.Second)
				s.await(10*time.Second, func() (bool, string) {
					q := s.queue("default")
					return q.Active == at, fmt.Sprintf("%+v", q)
				})
				freeze()
			}
			<-froze
			<-time.After(tt.away)
			server.Thaw()
			awaitRan(jobs, 25*time.Second)
			s.awaitDone("default", 10*time.Second)
			if n := ran.Load(); n != int64(jobs) {
				t.Errorf("%d jobs ran %d times", jobs, n)
			}
			if n := statsOf(t, limits, "x:limited").Failed; n > 0 {
				t.Errorf("%d attempts count as failed", n)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.failures) > 0 {
				t.Errorf("the ErrorHandler saw %v", s.failures)
			}
		})
	}
}
