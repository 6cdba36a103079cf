package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestExistingServer: a server with its own error handler, failure test, retry delays and
// middleware gets limits. The limits are kept, jobs without limits run beside them, and
// everything that is the server's own sees real failures only.
func TestExistingServer(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	var wrapped, asked, delayed atomic.Int32
	mux := asynq.NewServeMux()
	mux.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			wrapped.Add(1)
			return next.ProcessTask(ctx, task)
		})
	})
	errFails := errors.New("fails")
	m := member{name: "theirs", mux: mux, yaml: `
limits: { api: { rate: 20/1s, guard: 50ms }, tenant: { rate: 5/1s, guard: 50ms, key: payload.tenant } }
jobs: { "x:limited": { limits: [api, tenant] } }
`, asynq: asynq.Config{Concurrency: 10, DelayedTaskCheckInterval: time.Second,
		IsFailure:      func(err error) bool { asked.Add(1); return errors.Is(err, errFails) },
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { delayed.Add(1); return time.Second },
	}}
	var once sync.Once
	m.handle = func(_ context.Context, task *asynq.Task) (err error) {
		if task.Type() == "y:fails" {
			once.Do(func() { err = errFails })
		}
		return err
	}
	mux.HandleFunc("x", s.handler(m))
	mux.HandleFunc("y", s.handler(m))
	for i := range 200 {
		s.enqueuePayload("x:limited", fmt.Sprint("limited", i), fmt.Appendf(nil, `{"tenant": %d}`, i%10), asynq.MaxRetry(0))
	}
	s.serve(m)
	s.enqueue("y:fails", "failing", asynq.MaxRetry(3))
	var waits []time.Duration
	for i := range 50 {
		id, sent := fmt.Sprint("free", i), time.Now()
		s.enqueue("y:free", id)
		s.awaitStarts(id, 1, 10*time.Second)
		waits = append(waits, s.seen(id)[0].at.Sub(sent))
	}
	starts := s.awaitStarts("limited", 200, 30*time.Second)
	s.awaitStarts("failing", 2, 10*time.Second)
	slices.Sort(waits)
	took := starts[199].at.Sub(starts[0].at)
	t.Logf("200 jobs took %v, %.3f of the ideal; others waited p50 %v, p99 %v", took, took.Seconds()/(9*1.05), waits[25], waits[49])
	if most := busiest(starts, time.Second); most > 20 {
		t.Errorf("%d starts in a second, want at most 20", most)
	}
	if waits[49] > 2*time.Second {
		t.Errorf("a job without limits waited %v", waits[49])
	}
	s.await(10*time.Second, func() (bool, string) { q := s.queue("default"); return q.Size == 0, fmt.Sprintf("%+v", q) })
	if len(s.failures) != 1 || !errors.Is(s.failures[0], errFails) || asked.Load() != 1 || delayed.Load() != 1 {
		t.Errorf("failures %v, asked %d times whether one is, and %d times for a delay; want one each", s.failures, asked.Load(), delayed.Load())
	}
	if n := wrapped.Load(); n != 252 {
		t.Errorf("their middleware ran %d times, want once for each of 252 runs", n)
	}
	if len(starts) != 200 {
		t.Errorf("%d starts of 200 jobs", len(starts))
	}
}

// TestNotOurClient: a server that was not made with Redis() is refused.
func TestNotOurClient(t *testing.T) {
	s := newSite(t, redistest.Start(t))
	limits, err := asynqlimit.New(s.rdb, config.Default(), asynqlimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	srv := asynq.NewServerFromRedisClient(s.rdb, limits.Configure(asynq.Config{}))
	if err := limits.Serve(t.Context(), srv, asynq.NewServeMux()); !errors.Is(err, asynqlimit.ErrNotOurClient) {
		t.Errorf("%v", err)
	}
}

// TestUniqueInLine: a unique job waits longer than its lock was meant to last, and is still the
// only one.
func TestUniqueInLine(t *testing.T) {
	onBoth(t, func(s *site) {
		goOn := s.stopLimit("api", "50/1s")
		s.serve(member{yaml: fiftyPerSecond})
		s.enqueue("x:limited", "first", asynq.Unique(time.Second))
		s.awaitWaiting("default", 1)
		var ttl time.Duration
		for _, key := range s.rdb.Keys(s.t.Context(), "asynq:{default}:unique:*").Val() {
			ttl = s.rdb.PTTL(s.t.Context(), key).Val()
		}
		if ttl < 24*time.Hour || ttl > 26*time.Hour {
			s.t.Errorf("the lock lasts %v, want about 25h", ttl)
		}
		if _, err := s.client.Enqueue(asynq.NewTask("x:limited", nil), asynq.TaskID("second"), asynq.Unique(time.Second)); !errors.Is(err, asynq.ErrDuplicateTask) {
			s.t.Errorf("a second: %v", err)
		}
		goOn()
		s.awaitStarts("first", 1, 10*time.Second)
		s.awaitDone("default", 10*time.Second)
		if n := len(s.rdb.Keys(s.t.Context(), "asynq:{default}:unique:*").Val()); n != 0 {
			s.t.Error("the lock outlives its job")
		}
	})
}

// TestGroupsAndSchedules: tasks that asynq aggregates, and tasks that its Scheduler enqueues,
// have limits like others.
func TestGroupsAndSchedules(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	s.serve(member{yaml: "limits: { api: { rate: 2/1s } }\njobs: { \"x:\": { limits: [api], hold: 0 } }\n", asynq: asynq.Config{
		GroupGracePeriod: time.Second, GroupMaxSize: 5,
		GroupAggregator: asynq.GroupAggregatorFunc(func(group string, tasks []*asynq.Task) *asynq.Task {
			return asynq.NewTask("x:batch", fmt.Append(nil, len(tasks)), asynq.TaskID(group+fmt.Sprint(time.Now().UnixNano())), asynq.MaxRetry(0))
		}),
	}})
	scheduler := asynq.NewSchedulerFromRedisClient(s.rdb, &asynq.SchedulerOpts{LogLevel: asynq.ErrorLevel})
	if _, err := scheduler.Register("@every 1s", asynq.NewTask("x:cron", nil), asynq.TaskID("cron"), asynq.MaxRetry(0)); err != nil {
		t.Fatal(err)
	}
	if err := scheduler.Start(); err != nil {
		t.Fatal(err)
	}
	defer scheduler.Shutdown()
	for i := range 30 {
		s.enqueue("x:single", fmt.Sprint("single", i), asynq.Group("letters"))
	}
	s.awaitStarts("letters", 6, 20*time.Second)
	s.awaitStarts("cron", 3, 20*time.Second)
	if q := s.queue("default"); q.Archived+q.Failed != 0 {
		t.Errorf("%d archived, %d failed", q.Archived, q.Failed)
	}
}

// TestSettle: a job gives back what it did not use of one of its limits.
func TestSettle(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	settled := make(chan error, 3)
	s.serve(member{yaml: `
limits: { tokens: { rate: 100/1h }, requests: { rate: 100/1h } }
jobs: { "x:llm": { limits: [tokens, requests], permits: 10 } }
`, handle: func(ctx context.Context, _ *asynq.Task) error {
		settled <- asynqlimit.SettleLimit(ctx, "tokens", 4)
		settled <- asynqlimit.SettleLimit(ctx, "requests", 25)
		settled <- asynqlimit.SettleLimit(ctx, "unknown", 1)
		return nil
	}})
	s.enqueue("x:llm", "job")
	for _, bad := range []bool{false, false, true} {
		if err := <-settled; (err != nil) != bad {
			t.Errorf("%v", err)
		}
	}
	for name, want := range map[string]int64{"tokens": 96, "requests": 75} {
		if got, err := s.limiter(name).AvailablePermits(t.Context()); err != nil || got != want {
			t.Errorf("%s: %d left, %v; want %d", name, got, err, want)
		}
	}
	if err := asynqlimit.Settle(t.Context(), 1); err == nil {
		t.Error("no error outside of a handler")
	}
}

// TestHandlerAcquires: a handler that acquires has its permits when Acquire returns, and its job
// parks if it does not get them. Either the configuration says that of its jobs, or the program
// of its handlers.
func TestHandlerAcquires(t *testing.T) {
	t.Run("by the configuration", func(t *testing.T) {
		checkHandlerAcquires(t, "limits: [api], hold: 200ms, acquire: handler", asynqlimit.Options{})
	})
	t.Run("by the program", func(t *testing.T) {
		checkHandlerAcquires(t, "limits: [api], hold: 200ms", asynqlimit.Options{HandlersAcquire: []string{"x:"}})
	})
}

func checkHandlerAcquires(t *testing.T, job string, opts asynqlimit.Options) {
	onBoth(t, func(s *site) {
		var prepared atomic.Int32
		mux := asynq.NewServeMux()
		m := member{name: "a", mux: mux, yaml: "limits: { api: { rate: 10/1s, guard: 100ms } }\njobs: { \"x:\": { " + job + " } }\n", opts: opts}
		note := s.handler(m)
		mux.HandleFunc("x:", func(ctx context.Context, task *asynq.Task) error {
			if err := asynqlimit.Hold(ctx); err != nil {
				return err
			}
			prepared.Add(1)
			if err := asynqlimit.Acquire(ctx); err != nil {
				return fmt.Errorf("acquire: %w", err)
			}
			return note(ctx, task)
		})
		for i := range 30 {
			s.enqueue("x:job", fmt.Sprint("job", i), asynq.MaxRetry(0))
		}
		s.serve(m)
		starts := s.awaitStarts("job", 30, 20*time.Second)
		if most := busiest(starts, 950*time.Millisecond); most > 10 {
			s.t.Errorf("%d starts within 950ms, want at most 10", most)
		}
		s.awaitDone("default", 10*time.Second)
		if n := prepared.Load(); n > 45 {
			s.t.Errorf("30 jobs prepared %d times", n)
		}
	})
}
