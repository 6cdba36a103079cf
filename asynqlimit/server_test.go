package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

const existingRate, tenantRate, existingInterval, existingGuard = 20, 5, time.Second, 50 * time.Millisecond

// existing is what came of a server with its own error handler, failure test, retry delays and middleware. Some of its jobs
// have limits, others have none, and one of those without fails once.
type existing struct {
	limited  []start
	waits    []time.Duration // of the jobs without limits, from enqueueing to start, sorted
	failures []error         // that its error handler saw

	// How often asynq asked its failure test, asked it for a delay, and ran its middleware.
	asked, delayed, wrapped int32
}

var errFails = errors.New("fails")

// runExisting runs so many jobs of ten tenants within the limits of their type and their tenant, all enqueued beforehand, and
// 50 others, one after each pause.
func runExisting(tb testing.TB, limited int, tenantOf func(job int) int, pause time.Duration) existing {
	const free = 50
	s := newSite(tb, redistest.Start(tb))
	var wrapped, asked, delayed atomic.Int32
	mux := asynq.NewServeMux()
	mux.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			wrapped.Add(1)
			return next.ProcessTask(ctx, task)
		})
	})
	m := member{name: "theirs", mux: mux, yaml: fmt.Sprintf(`
limits: { api: { rate: %d/%v, guard: %v }, tenant: { rate: %d/%[2]v, guard: %[3]v, key: payload.tenant } }
jobs: { "x:limited": { limits: [api, tenant] } }
`, existingRate, existingInterval, existingGuard, tenantRate), asynq: asynq.Config{Concurrency: 10, DelayedTaskCheckInterval: time.Second,
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
	for i := range limited {
		s.enqueuePayload("x:limited", fmt.Sprint("limited", i), fmt.Appendf(nil, `{"tenant": %d}`, tenantOf(i)), asynq.MaxRetry(0))
	}
	stop := s.serve(m)
	s.enqueue("y:fails", "failing", asynq.MaxRetry(3))
	sent := map[string]time.Time{}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for i := range free {
		<-tick.C
		id := fmt.Sprint("free", i)
		sent[id] = time.Now()
		s.enqueue("y:free", id)
	}
	e := existing{limited: s.awaitStarts("limited", limited, 2*idealExisting(limited, tenantOf)+20*time.Second)}
	s.awaitStarts("failing", 2, 10*time.Second)
	for _, st := range s.awaitStarts("free", free, 10*time.Second) {
		e.waits = append(e.waits, st.at.Sub(sent[st.id]))
	}
	slices.Sort(e.waits)
	s.await(10*time.Second, func() (bool, string) { q := s.queue("default"); return q.Size == 0, fmt.Sprintf("%+v", q) })
	stop()
	e.limited, e.failures = s.seen("limited"), s.failures
	e.asked, e.delayed, e.wrapped = asked.Load(), delayed.Load(), wrapped.Load()
	return e
}

// took is the time from the first start to the last of the jobs with limits.
func (e existing) took() time.Duration { return e.limited[len(e.limited)-1].at.Sub(e.limited[0].at) }

// p99 is how long the jobs without limits waited.
func (e existing) p99() time.Duration { return e.waits[len(e.waits)*99/100] }

// TestExistingServer: a server with its own error handler, failure test, retry delays and
// middleware gets limits. The limits are kept, jobs without limits run beside them, and
// everything that is the server's own sees real failures only. BenchmarkExistingServer has the times.
func TestExistingServer(t *testing.T) {
	t.Parallel()
	const jobs = 200
	tenantOf := arrangements["runs of 10, then in turn"]
	ideal := idealExisting(jobs, tenantOf)
	alone := runExisting(t, 0, tenantOf, 20*time.Millisecond)
	e := runExisting(t, jobs, tenantOf, ideal/50)
	t.Logf("200 jobs took %v, %.3f of the ideal; others waited p50 %v, p99 %v; alone p50 %v, p99 %v",
		e.took(), e.took().Seconds()/ideal.Seconds(), e.waits[25], e.p99(), alone.waits[25], alone.p99())
	if most := busiest(e.limited, existingInterval); most > existingRate {
		t.Errorf("%d starts in a second, want at most %d", most, existingRate)
	}
	tenants := map[int][]start{}
	for _, st := range e.limited {
		var job int
		if _, err := fmt.Sscanf(st.id, "limited%d", &job); err != nil {
			t.Fatal(err)
		}
		tenants[tenantOf(job)] = append(tenants[tenantOf(job)], st)
	}
	for tenant, starts := range tenants {
		if most := busiest(starts, existingInterval); most > tenantRate {
			t.Errorf("%d starts of tenant %d in a second, want at most %d", most, tenant, tenantRate)
		}
	}
	if most := 2 * ideal; e.took() > most { // it works: the benchmark says how well
		t.Errorf("the jobs took %v, want at most %v", e.took(), most)
	}
	if most := alone.p99()*3/2 + time.Second; e.p99() > most {
		t.Errorf("a job without limits waited %v, want at most %v", e.p99(), most)
	}
	for name, of := range map[string]existing{"alone": alone, "beside the others": e} {
		if len(of.failures) != 1 || !errors.Is(of.failures[0], errFails) || of.asked != 1 || of.delayed != 1 {
			t.Errorf("%s: failures %v, asked %d times whether one is, and %d times for a delay; want one each", name, of.failures, of.asked, of.delayed)
		}
		if runs := len(of.limited) + len(of.waits) + 2; of.wrapped != int32(runs) {
			t.Errorf("%s: their middleware ran %d times, want once for each of %d runs", name, of.wrapped, runs)
		}
	}
	if len(e.limited) != jobs {
		t.Errorf("%d starts of %d jobs", len(e.limited), jobs)
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

// TestPeriodicTasks: a task of asynq's PeriodicTaskManager is due more often than its limit allows, and its configuration
// changes once, while a task of the old one waits. Each task that was enqueued runs once, and none is archived.
func TestPeriodicTasks(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	s.serve(member{yaml: "limits: { api: { rate: 1/3s, guard: 300ms } }\njobs: { \"x:\": { limits: [api], hold: 200ms } }\n"})
	var mu sync.Mutex
	enqueued := map[string]int{} // by id
	configs := periodic{config: &asynq.PeriodicTaskConfig{
		Cronspec: "@every 1s", Task: asynq.NewTask("x:cron", []byte("old")), Opts: []asynq.Option{asynq.TaskID("old"), asynq.MaxRetry(0)},
	}}
	manager, err := asynq.NewPeriodicTaskManager(asynq.PeriodicTaskManagerOpts{
		PeriodicTaskConfigProvider: &configs, RedisUniversalClient: s.rdb, SyncInterval: 100 * time.Millisecond,
		SchedulerOpts: &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel, PostEnqueueFunc: func(info *asynq.TaskInfo, err error) {
			if errors.Is(err, asynq.ErrTaskIDConflict) || errors.Is(err, asynq.ErrDuplicateTask) {
				return // the one before still waits
			}
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			enqueued[info.ID]++
			mu.Unlock()
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := manager.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(manager.Shutdown)
	defer stop()
	s.awaitStarts("old", 1, 10*time.Second)
	s.awaitWaiting("default", 1)
	configs.set(&asynq.PeriodicTaskConfig{
		Cronspec: "@every 1s", Task: asynq.NewTask("x:cron", []byte("new")), Opts: []asynq.Option{asynq.Unique(time.Hour), asynq.MaxRetry(0)},
	})
	s.awaitStarts("", 3, 20*time.Second)
	stop()
	s.awaitDone("default", 10*time.Second)
	starts, ran := s.seen(""), map[string]int{}
	for _, st := range starts {
		ran[st.id]++
	}
	if !maps.Equal(ran, enqueued) || ran["old"] < 2 || len(ran) < 2 {
		t.Errorf("enqueued %v, ran %v; want the same, the old one twice and a new one", enqueued, ran)
	}
	if most := busiest(starts, 3*time.Second); most > 1 {
		t.Errorf("%d starts within 3s, want 1", most)
	}
}

// periodic is the configuration of a PeriodicTaskManager, with one task.
type periodic struct {
	mu     sync.Mutex
	config *asynq.PeriodicTaskConfig
}

func (p *periodic) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return []*asynq.PeriodicTaskConfig{p.config}, nil
}

func (p *periodic) set(config *asynq.PeriodicTaskConfig) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.config = config
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
