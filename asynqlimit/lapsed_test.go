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
// Nothing has failed, also if their handlers get the permits: the jobs go on waiting, and the program's
// ErrorHandler does not hear of it.
func TestCancelledWhileItWaits(t *testing.T) {
	t.Parallel()
	for _, acquires := range []bool{false, true} {
		t.Run(fmt.Sprint("acquires ", acquires), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			const jobs = 3
			for i := range jobs {
				s.enqueue("x:limited", fmt.Sprint("x", i), asynq.MaxRetry(0), asynq.Retention(time.Hour))
			}
			var opts asynqlimit.Options
			if acquires {
				opts.HandlersAcquire = []string{"x"}
			}
			var waits, ran atomic.Int64
			s.serve(member{yaml: `
limits: { api: { rate: 1/4s } }
jobs: { "x:limited": { limits: [api], hold: 1m } }
`, opts: opts, handle: func(ctx context.Context, _ *asynq.Task) error {
				waits.Add(1)
				if err := asynqlimit.Acquire(ctx); err != nil {
					return err
				}
				ran.Add(1)
				return nil
			}})
			awaitRan := func(n int64, within time.Duration) {
				s.await(within, func() (bool, string) { return ran.Load() >= n, fmt.Sprint(ran.Load(), " ran") })
			}
			awaitRan(1, 10*time.Second)
			s.await(10*time.Second, func() (bool, string) { // the others wait in the process
				q := s.queue("default")
				return q.Active == jobs-1 && (!acquires || waits.Load() == jobs), fmt.Sprintf("%+v", q)
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
			if n := ran.Load(); n != jobs {
				t.Errorf("%d jobs ran %d times", jobs, n)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.failures) > 0 {
				t.Errorf("the ErrorHandler saw %v", s.failures)
			}
		})
	}
}

// TestWaitsTogetherLeaveTime: a job waits for its permit, and then for a slot of its limit in flight. It does not use up more
// of its timeout than it may for one of them: it parks, and its handler has the time that it needs.
func TestWaitsTogetherLeaveTime(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	s.serve(member{yaml: `
limits: { api: { rate: 1/2s }, one: { in_flight: 1 } }
jobs: { "x:limited": { limits: [api, one] } }
`, handle: func(ctx context.Context, _ *asynq.Task) error {
		d := 3300 * time.Millisecond
		if id, _ := asynq.GetTaskID(ctx); id == "late" {
			d = 6 * time.Second
		}
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	s.enqueue("x:limited", "first", asynq.MaxRetry(0))
	s.awaitStarts("first", 1, 5*time.Second)
	<-time.After(150 * time.Millisecond) // so that the next permit is due within hold
	s.enqueue("x:limited", "late", asynq.MaxRetry(0), asynq.Timeout(8*time.Second))
	s.awaitDone("default", 25*time.Second)
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

// TestLateForASlot: a job's permit is due while all slots of its server are in use. It gets a slot soon after, and keeps its
// turn: a job that came later, to a server with free slots, does not start before it.
func TestLateForASlot(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	const yaml = "limits: { api: { rate: 1/2s } }\njobs: { \"x:limited\": { limits: [api] } }\n"
	ends := map[string]chan struct{}{"first": make(chan struct{}), "busy1": make(chan struct{}), "busy2": make(chan struct{})}
	close(ends["first"])
	handle := func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		if end := ends[id]; end != nil {
			<-end
		}
		return nil
	}
	s.serve(member{yaml: yaml, asynq: asynq.Config{Concurrency: 2, Queues: map[string]int{"full": 1}}, handle: handle})
	s.serve(member{yaml: yaml, asynq: asynq.Config{Concurrency: 2, Queues: map[string]int{"idle": 1}}, handle: handle})
	s.enqueue("y:free", "busy1", asynq.Queue("full"))
	s.awaitStarts("busy1", 1, 5*time.Second)
	s.enqueue("x:limited", "first", asynq.Queue("idle"))
	first := s.awaitStarts("first", 1, 5*time.Second)[0].at
	<-time.After(time.Until(first.Add(100 * time.Millisecond))) // so that the next permit is due within hold
	s.enqueue("x:limited", "late", asynq.Queue("full"))
	s.await(5*time.Second, func() (bool, string) { // it waits there
		q := s.queue("full")
		return q.Active == 2, fmt.Sprintf("%+v", q)
	})
	s.enqueue("y:free", "busy2", asynq.Queue("full"))
	s.awaitStarts("busy2", 1, 5*time.Second)
	s.enqueue("x:limited", "next", asynq.Queue("idle"))
	<-time.After(time.Until(first.Add(2900 * time.Millisecond)))
	close(ends["busy1"])
	late, next := s.awaitStarts("late", 1, 10*time.Second)[0].at, s.awaitStarts("next", 1, 10*time.Second)[0].at
	if late.After(next) || late.Sub(first) > 3500*time.Millisecond {
		t.Errorf("the one that was late started after %v, the next after %v", late.Sub(first), next.Sub(first))
	}
	close(ends["busy2"])
}
