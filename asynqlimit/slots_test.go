package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// running counts the handlers that run at a time, by name.
type running struct {
	mu        sync.Mutex
	now, most map[string]int
}

func newRunning() *running { return &running{now: map[string]int{}, most: map[string]int{}} }

func (r *running) run(d time.Duration, names ...string) {
	r.mu.Lock()
	for _, name := range names {
		r.now[name]++
		r.most[name] = max(r.most[name], r.now[name])
	}
	r.mu.Unlock()
	time.Sleep(d) // the work
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		r.now[name]--
	}
}

func (r *running) check(t testing.TB, name string, limit int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.most[name] > limit {
		t.Errorf("%s: %d ran at a time, the limit is %d", name, r.most[name], limit)
	}
}

// TestInFlight: 300 jobs on three servers, at most 7 at a time and at most 2 of each of 20
// accounts, with and without a rate. No more than that run, and all are done.
func TestInFlight(t *testing.T) {
	for name, rate := range map[string]string{"slots": "", "slots and a rate": "api, "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, r := newSite(t, redistest.Start(t)), newRunning()
			yaml := `
limits:
  all: { in_flight: 7 }
  account: { in_flight: 2, key: payload.account }
`
			if rate != "" {
				yaml += "  api: { rate: 100/1s }\n"
			}
			yaml += `jobs: { x: { limits: [` + rate + `all, account] } }`
			handle := func(_ context.Context, task *asynq.Task) error {
				r.run(20*time.Millisecond, "all", string(task.Payload()))
				return nil
			}
			for i := range 300 {
				s.enqueuePayload("x", fmt.Sprintf("x%03d", i), fmt.Appendf(nil, `{"account":%d}`, i*i%20))
			}
			for i := range 3 {
				s.serve(member{name: fmt.Sprint(i), yaml: yaml, asynq: asynq.Config{Concurrency: 20}, handle: handle})
			}
			began := time.Now()
			s.awaitDone("default", 60*time.Second)
			t.Logf("300 jobs in %v", time.Since(began))
			r.check(t, "all", 7)
			for i := range 20 {
				r.check(t, fmt.Sprintf(`{"account":%d}`, i), 2)
			}
			if n := len(s.seen("x")); n != 300 {
				t.Errorf("%d starts", n)
			}
			if r.most["all"] < 5 {
				t.Errorf("at most %d ran at a time", r.most["all"])
			}
		})
	}
}

// TestSpoiltInFlightIsCorrected: a server that is started corrects a limit in flight whose number makes no sense, and the
// tasks that wait for it go on.
func TestSpoiltInFlightIsCorrected(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	c, err := throttle.New(s.rdb, throttle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	one, err := c.InFlight("one", throttle.Slots{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := one.Acquire(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	m := member{yaml: `{limits: { one: { in_flight: 1 } }, jobs: { x: { limits: [one] } }}`, asynq: asynq.Config{Concurrency: 2}}
	stop := s.serve(m)
	for i := range 10 {
		s.enqueue("x", fmt.Sprint("x", i))
	}
	s.awaitWaiting("default", 10)
	stop()
	if err := errors.Join(lease.Release(t.Context()), s.rdb.HSet(t.Context(), "one", "in_flight", -1).Err()); err != nil {
		t.Fatal(err)
	}
	s.serve(m)
	s.awaitDone("default", 30*time.Second)
}

// TestInFlightLeavesSlots: jobs that wait for a slot of the fleet do not keep others from the
// slots of the server, and hold nothing.
func TestInFlightLeavesSlots(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	release := make(chan struct{})
	s.serve(member{
		yaml:  `{limits: { one: { in_flight: 1 } }, jobs: { x: { limits: [one], hold: 500ms } }}`,
		asynq: asynq.Config{Concurrency: 2},
		handle: func(_ context.Context, task *asynq.Task) error {
			if task.Type() == "x" {
				<-release
			}
			return nil
		},
	})
	for i := range 10 {
		s.enqueue("x", fmt.Sprint("x", i), asynq.MaxRetry(0))
	}
	s.awaitStarts("x", 1, 10*time.Second)
	for i := range 20 {
		s.enqueue("y", fmt.Sprint("y", i))
	}
	s.awaitStarts("y", 20, 20*time.Second)
	if n := len(s.seen("x")); n != 1 {
		t.Errorf("%d jobs run under a limit of one", n)
	}
	close(release)
	s.awaitDone("default", 30*time.Second)
}

// TestSlotOfTheCutOff: if a server loses Redis, its handler's context ends before another job
// gets the slot. The job that lost the slot is done again.
func TestSlotOfTheCutOff(t *testing.T) {
	t.Parallel()
	s, r := newSite(t, redistest.Start(t)), newRunning()
	const yaml = `{limits: { one: { in_flight: 1, lease: 3s } }, jobs: { x: { limits: [one] } }}`
	ended := make(chan time.Time, 1)
	stats := make(chan func() asynqlimit.Stats, 1)
	s.serve(member{name: "cut", yaml: yaml, made: func(l *asynqlimit.Limits) { stats <- l.Stats }, handle: func(ctx context.Context, _ *asynq.Task) error {
		<-ctx.Done()
		ended <- time.Now()
		return ctx.Err()
	}})
	s.enqueue("x", "x0", asynq.MaxRetry(0), asynq.Timeout(time.Minute))
	s.awaitStarts("x0", 1, 10*time.Second)
	// somebody deletes what Redis knows of the lease: it is not renewed
	if n := s.rdb.Del(t.Context(), "{one}:held", "{one}:slots").Val(); n != 2 {
		t.Fatalf("%d keys, want those of a lease", n)
	}
	began := time.Now()
	s.serve(member{name: "next", yaml: yaml, handle: func(context.Context, *asynq.Task) error { r.run(0, "x"); return nil }})
	select {
	case at := <-ended:
		if took := at.Sub(began); took > 2*time.Second {
			t.Errorf("the handler's context ended after %v, want a third of the lease", took)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the handler's context did not end")
	}
	if got := (<-stats)().Slots[0]; got.Lost != 1 || got.Held != 1 {
		t.Errorf("stats %+v, want one slot that was lost", got)
	}
}

// TestSlotsThatRedisRefuses: while Redis answers with an error for the slots of a job, the job is
// tried from time to time. It goes on when that is over.
func TestSlotsThatRedisRefuses(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	var refuses atomic.Bool
	var tries atomic.Int64
	refuses.Store(true)
	rdb := s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if args := cmd.Args(); refuses.Load() && len(args) > 3 && fmt.Sprint(args[3]) == "slots" { // its first key
			err := redisError("ERR no")
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	})
	s.enqueue("x", "x")
	counts := func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			tries.Add(1)
			return next.ProcessTask(ctx, task)
		})
	}
	s.serve(member{rdb: rdb, opts: asynqlimit.Options{Attempt: counts}, yaml: `
limits: { slots: { in_flight: 2 } }
jobs: { x: { limits: [slots] } }
`})
	<-time.After(3 * time.Second)
	if n := tries.Load(); n < 1 || n > 10 {
		t.Errorf("%d tries in 3 s", n)
	}
	refuses.Store(false)
	s.awaitDone("default", 20*time.Second)
}

// redisError is an error answer of Redis.
type redisError string

func (e redisError) Error() string { return string(e) }
func (e redisError) RedisError()   {}

// TestFreshBesideCalled: jobs that come now do not wait until all that are called from a line have
// run: with strict priority those of higher queues come first, otherwise all queues have their part.
func TestFreshBesideCalled(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{true, false} {
		t.Run(fmt.Sprint("strict ", strict), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			goOn := s.stopLimit("api", "1000/1s")
			const called, fresh = 500, 20
			for i := range called {
				s.enqueue("x:limited", fmt.Sprintf("called%03d", i), asynq.Queue("low"))
			}
			s.serve(member{yaml: `
limits: { api: { rate: 1000/1s } }
jobs: { "x:limited": { limits: [api], hold: 100ms } }
`, asynq: asynq.Config{Concurrency: 10, Queues: map[string]int{"high": 6, "low": 1}, StrictPriority: strict}, handle: func(context.Context, *asynq.Task) error {
				<-time.After(100 * time.Millisecond)
				return nil
			}})
			s.awaitWaiting("low", called)
			goOn()
			s.awaitStarts("called", 50, 5*time.Second) // the slots are full, and will be for some seconds
			for i := range fresh {
				s.enqueue("y:free", fmt.Sprintf("fresh%02d", i), asynq.Queue("high"))
			}
			s.awaitStarts("fresh", fresh, time.Second)
			s.awaitStarts("called", called, 15*time.Second)
		})
	}
}

// TestCalledBesideFresh: jobs that are called from a line do not wait until a backlog of jobs that need
// no limit has run: the queues have their parts of the slots.
func TestCalledBesideFresh(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	goOn := s.stopLimit("api", "1000/1s")
	const called, fresh = 500, 2000
	for i := range called {
		s.enqueue("x:limited", fmt.Sprintf("called%03d", i), asynq.Queue("high"))
	}
	s.serve(member{yaml: `
limits: { api: { rate: 1000/1s } }
jobs: { "x:limited": { limits: [api], hold: 100ms } }
`, asynq: asynq.Config{Concurrency: 10, Queues: map[string]int{"high": 6, "low": 1}}, handle: func(context.Context, *asynq.Task) error {
		<-time.After(50 * time.Millisecond)
		return nil
	}})
	s.awaitWaiting("high", called)
	for i := range fresh {
		s.enqueue("y:free", fmt.Sprintf("fresh%04d", i), asynq.Queue("low"))
	}
	goOn()
	began := time.Now()
	s.awaitStarts("called", called, 8*time.Second) // 2.5 s if they have all slots, 12.5 s if they come last
	n := len(s.seen("fresh"))
	t.Logf("%d of the others started meanwhile, in %v", n, time.Since(began))
	if n < 30 {
		t.Errorf("only %d of the others started meanwhile", n)
	}
}

// TestCalledBesideLong: where handlers are so long that a job in line is called only when a slot is free,
// jobs in line of a queue that comes first get the slots that are given back, though others are at hand.
func TestCalledBesideLong(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		slots         int
		lasts         time.Duration
		called, fresh int           // how many wait in line, and how many others may start meanwhile
		within        time.Duration // the called ones
	}{
		"few slots":        {2, 500 * time.Millisecond, 20, 20, 10 * time.Second},     // 5 s if they have all slots, 30 s and 37 others if they come last
		"a batch of slots": {8, 2500 * time.Millisecond, 32, 8 + 8, 15 * time.Second}, // 10 s, and the 8 that run when they may go on
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			goOn := s.stopLimit("api", "1000/1s")
			for i := range tt.called {
				s.enqueue("x:limited", fmt.Sprintf("called%03d", i), asynq.Queue("high"))
			}
			s.serve(member{yaml: `
limits: { api: { rate: 1000/1s } }
jobs: { "x:limited": { limits: [api], hold: 100ms } }
`, asynq: asynq.Config{Concurrency: tt.slots, StrictPriority: true, Queues: map[string]int{"high": 6, "low": 1}}, handle: func(context.Context, *asynq.Task) error {
				<-time.After(tt.lasts)
				return nil
			}})
			s.awaitWaiting("high", tt.called)
			for i := range 100 {
				s.enqueue("y:free", fmt.Sprintf("fresh%04d", i), asynq.Queue("low"))
			}
			s.awaitStarts("fresh", tt.slots, 5*time.Second)
			goOn()
			s.awaitStarts("called", tt.called, tt.within)
			if n := len(s.seen("fresh")); n > tt.fresh {
				t.Errorf("%d of the others started meanwhile", n)
			}
		})
	}
}

// TestHandlerThatAcquiresHoldsNoSlot: a job whose handler gets its permits itself waits for them without its slot of a limit in
// flight, also if its permits were due when it had yet to wait for the slot.
func TestHandlerThatAcquiresHoldsNoSlot(t *testing.T) {
	onBoth(t, func(s *site) {
		release, got := make(chan struct{}), make(chan string, 10)
		s.serve(member{
			yaml: `
limits: { api: { rate: 2/8s }, slots: { in_flight: 1 } }
jobs:
  "x:": { limits: [api, slots], hold: 20s, acquire: handler }
  "y:": { limits: [slots] }
`,
			asynq: asynq.Config{Concurrency: 5},
			handle: func(ctx context.Context, task *asynq.Task) error {
				if task.Type() == "x:job" {
					if err := asynqlimit.Acquire(ctx); err != nil {
						return err
					}
				}
				got <- task.Type()
				if task.Type() == "y:first" {
					<-release
				}
				return nil
			},
		})
		next := func(within time.Duration) string {
			select {
			case name := <-got:
				return name
			case <-time.After(within):
				return "nobody"
			}
		}
		s.enqueue("y:first", "first")
		if name := next(20 * time.Second); name != "y:first" {
			t.Fatalf("%s has the slot, want y:first", name)
		}
		s.enqueue("x:job", "job") // its permits are free, and the slot is not
		client, err := throttle.New(s.rdb, throttle.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		s.await(10*time.Second, func() (bool, string) { // it waits for the slot
			n := s.rdb.ZCard(t.Context(), "{slots}:line").Val()
			return n == 1, fmt.Sprintf("%d wait for the slot", n)
		})
		api, err := client.Limiter("api")
		if err != nil {
			t.Fatal(err)
		}
		if err := api.Acquire(t.Context(), 2); err != nil { // and now they are not, for 8 s
			t.Fatal(err)
		}
		close(release)
		s.enqueue("y:second", "second")
		if name := next(4 * time.Second); name != "y:second" {
			t.Errorf("%s runs in the slot that waits for permits, want y:second", name)
		}
		if name := next(30 * time.Second); name != "x:job" {
			t.Errorf("%s runs at the end, want x:job", name)
		}
	})
}
