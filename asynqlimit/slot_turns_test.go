package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// takeAllSlots takes n slots of a limit in flight, until free is called.
func (s *site) takeAllSlots(name string, n int) (free func()) {
	s.t.Helper()
	c, err := throttle.New(s.rdb, throttle.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	slots, err := c.InFlight(name, throttle.Slots{Limit: int64(n)})
	if err != nil {
		s.t.Fatal(err)
	}
	leases := make([]*throttle.Lease, n)
	for i := range leases {
		if leases[i], err = slots.Acquire(s.t.Context(), fmt.Sprint("holder", i)); err != nil {
			s.t.Fatal(err)
		}
	}
	return func() {
		s.t.Helper()
		for _, lease := range leases {
			if err := lease.Release(s.t.Context()); err != nil {
				s.t.Error(err)
			}
		}
	}
}

// lasting returns a handler that takes so long.
func lasting(d time.Duration) func(context.Context, *asynq.Task) error {
	return func(ctx context.Context, _ *asynq.Task) error {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		return ctx.Err()
	}
}

// TestSlotLinesBesideLong: where handlers are so long that all slots of the server are in use, jobs in line
// for slots of a limit in flight have their turns when a slot of the server is given back, though others
// are at hand. Their queue comes first.
func TestSlotLinesBesideLong(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	free := s.takeAllSlots("one", 8)
	const called, fresh = 8, 8
	for i := range called {
		s.enqueue("x:limited", fmt.Sprintf("called%03d", i), asynq.Queue("high"))
	}
	s.serve(member{yaml: `
limits: { one: { in_flight: 8 } }
jobs: { "x:limited": { limits: [one], hold: 100ms } }
`, asynq: asynq.Config{Concurrency: 2, StrictPriority: true, Queues: map[string]int{"high": 6, "low": 1}}, handle: lasting(1500 * time.Millisecond)})
	s.awaitWaiting("high", called)
	for i := range 100 {
		s.enqueue("y:free", fmt.Sprintf("fresh%04d", i), asynq.Queue("low"))
	}
	s.awaitStarts("fresh", 2, 5*time.Second)
	free()
	s.awaitStarts("called", called, 12*time.Second) // 6 s if they have all slots, 75 s if they come last
	if n := len(s.seen("fresh")); n > fresh {
		t.Errorf("%d of the others started meanwhile", n)
	}
}

// TestNextInLineBesideLong: jobs run one at a time, beside a backlog of others, and their queue comes
// first. When one ends, the next in line gets its slot of the server: nobody else does.
func TestNextInLineBesideLong(t *testing.T) {
	t.Parallel()
	for name, yaml := range map[string]string{
		"in flight": `
limits: { one: { in_flight: 1 } }
jobs: { "x:limited": { limits: [one], hold: 0 } }
`,
		"in flight of a key": `
limits: { one: { in_flight: 1, key: payload.customer } }
jobs: { "x:limited": { limits: [one], hold: 0 } }
`,
		"max in flight": `
jobs: { "x:limited": { max_in_flight: 1, hold: 0 } }
`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			const jobs, lasts = 8, 700 * time.Millisecond
			s.serve(member{yaml: yaml, asynq: asynq.Config{Concurrency: 2, StrictPriority: true, Queues: map[string]int{"high": 6, "low": 1}},
				handle: func(ctx context.Context, task *asynq.Task) error {
					if task.Type() == "y:free" {
						return lasting(2*lasts)(ctx, task)
					}
					return lasting(lasts)(ctx, task)
				}})
			for i := range jobs {
				s.enqueuePayload("x:limited", fmt.Sprintf("x%d", i), []byte(`{"customer": 7}`), asynq.Queue("high"))
			}
			s.awaitStarts("x", 1, 5*time.Second)
			for i := range 100 {
				s.enqueue("y:free", fmt.Sprintf("fresh%04d", i), asynq.Queue("low"))
			}
			starts := s.awaitStarts("x", jobs, 40*time.Second)
			var gaps []time.Duration
			for i := range jobs - 1 {
				gaps = append(gaps, starts[i+1].at.Sub(starts[i].at)-lasts)
			}
			t.Logf("time between two of them: %v", gaps)
			if slices.Sort(gaps); gaps[len(gaps)/2] > lasts/2 {
				t.Errorf("the slot was idle for %v between two jobs", gaps[len(gaps)/2])
			}
		})
	}
}

// TestSlotsWhereVisitsAreSlow: Redis's answer to a visit of a line comes after the jobs that it has called. Their slots are not
// left idle when they have ended, because others were to come.
func TestSlotsWhereVisitsAreSlow(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	free := s.takeAllSlots("one", 1)
	late := s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if slices.ContainsFunc(cmd.Args(), func(arg any) bool { return arg == "!in_flight:one" }) {
			<-time.After(100 * time.Millisecond)
		}
		return err
	})
	const jobs = 20
	for i := range jobs {
		s.enqueue("x:limited", fmt.Sprintf("job%02d", i))
	}
	s.serve(member{yaml: `
limits: { one: { in_flight: 1 } }
jobs: { "x:limited": { limits: [one], hold: 0 } }
`, rdb: late})
	s.awaitWaiting("default", jobs)
	free()
	s.awaitStarts("job", jobs, 10*time.Second) // 2 s; 20 s if each slot is left to one that has come
}

// TestSlotIsFreeWhileOthersWaitForPermits: the first in line for the only slot need permits, too, which are due much later. The slot
// goes to those behind them meanwhile, however many they are.
func TestSlotIsFreeWhileOthersWaitForPermits(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	free := s.takeAllSlots("seat", 1)
	const yaml = `
limits: { api: { rate: 200/20s }, seat: { in_flight: 1 } }
jobs: { "x:": { limits: [api, seat], hold: %s }, "y:": { limits: [seat], hold: 0 } }
`
	const firsts, others = 20, 5
	stop := s.serve(member{yaml: fmt.Sprintf(yaml, "0")})
	for i := range firsts {
		s.enqueue("x:job", fmt.Sprint("first", i))
	}
	s.awaitWaiting("default", firsts)
	for i := range others {
		s.enqueue("y:job", fmt.Sprint("other", i))
	}
	s.awaitWaiting("default", firsts+others)
	stop()
	if ok, err := s.limiter("api").TryAcquire(t.Context(), 200); err != nil || !ok {
		t.Fatal(ok, err)
	}
	s.serve(member{yaml: fmt.Sprintf(yaml, "30s"), asynq: asynq.Config{Concurrency: 2}})
	free()
	s.awaitStarts("other", others, 8*time.Second) // 20 s, if the others fill the room
}

// TestFullLimitLeavesSlots: all slots of a large limit in flight are taken elsewhere, and hold is long. A few of the jobs in line for
// them wait in the server, but in none of its slots: other jobs, which come one after the other, go on.
func TestFullLimitLeavesSlots(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	s.takeAllSlots("seats", 400)
	const jobs, others = 300, 40
	for i := range jobs {
		s.enqueue("x:job", fmt.Sprint("job", i))
	}
	s.serve(member{yaml: `
limits: { seats: { in_flight: 400 } }
jobs: { "x:": { limits: [seats], hold: 30s } }
`, asynq: asynq.Config{Concurrency: 4}})
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := range others {
		<-tick.C
		s.enqueue("y:free", fmt.Sprint("free", i))
		s.awaitStarts("free", i+1, 10*time.Second) // 30 s, once the others wait in all slots
	}
}

// TestHoldForeverAndSlots: with hold: forever, a job waits for a slot for a quarter of its timeout, and then parks.
func TestHoldForeverAndSlots(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	s.takeAllSlots("seat", 1)
	s.enqueue("x:job", "job", asynq.Timeout(8*time.Second))
	s.serve(member{yaml: `
limits: { seat: { in_flight: 1 } }
jobs: { "x:": { limits: [seat], hold: forever } }
`})
	s.await(5*time.Second, func() (bool, string) {
		q := s.queue("default")
		return q.Retry == 1 && q.Active == 0, fmt.Sprintf("%+v", q)
	})
}

// TestSharesOfThoseCalledForSlots: jobs of one tenant are in line for slots, and hold is long. When there are slots, they do not take
// the permits of many seconds to come: a job of another tenant that comes then has its turn.
func TestSharesOfThoseCalledForSlots(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	const jobs = 20
	free := s.takeAllSlots("seats", jobs)
	const yaml = `
limits: { api: { rate: %s, share: payload.tenant }, seats: { in_flight: 20 } }
jobs: { "x:": { limits: [api, seats], hold: %s } }
`
	stop := s.serve(member{yaml: fmt.Sprintf(yaml, "100/1s", "0")})
	for i := range jobs {
		s.enqueuePayload("x:job", fmt.Sprint("many", i), []byte(`{"tenant": "many"}`))
	}
	s.awaitWaiting("default", jobs)
	stop()
	s.serve(member{yaml: fmt.Sprintf(yaml, "1/1s", "30s")})
	free()
	s.awaitStarts("many", 1, 5*time.Second)
	s.enqueuePayload("x:job", "one", []byte(`{"tenant": "one"}`))
	s.awaitStarts("one", 1, 6*time.Second)
}

// TestSlotsOfQueues: two queues have jobs in line for the only slot of a limit in flight. Its slot goes to the queue that comes first:
// always, if the server is strict, else as often as its weight says.
func TestSlotsOfQueues(t *testing.T) {
	t.Parallel()
	for strict, most := range map[bool]int{true: 2, false: 20} {
		t.Run(fmt.Sprint("strict ", strict), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			free := s.takeAllSlots("seat", 1)
			const jobs = 40
			for i := range jobs {
				s.enqueue("x:job", fmt.Sprint("low", i), asynq.Queue("low"))
				s.enqueue("x:job", fmt.Sprint("high", i), asynq.Queue("high"))
			}
			s.serve(member{yaml: `
limits: { seat: { in_flight: 1 } }
jobs: { "x:": { limits: [seat], hold: 0 } }
`, asynq: asynq.Config{Queues: map[string]int{"high": 6, "low": 1}, StrictPriority: strict}, handle: lasting(50 * time.Millisecond)})
			s.awaitWaiting("low", jobs)
			s.awaitWaiting("high", jobs)
			free()
			s.awaitStarts("high", jobs, 15*time.Second)
			if n := len(s.seen("low")); n > most { // 39, if they take turns
				t.Errorf("%d jobs of the other queue started meanwhile, want at most %d", n, most)
			}
			s.awaitStarts("low", jobs, 15*time.Second)
		})
	}
}

// TestOrderOfOneQueueLeavesSlotsToAnother: jobs of one customer run one at a time, in order within their queue. The first of the queue
// that comes first has failed and waits for its next attempt. Those behind it wait for it; those of the other queue do not.
func TestOrderOfOneQueueLeavesSlotsToAnother(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	later := func(int, error, *asynq.Task) time.Duration { return time.Hour }
	s.serve(member{yaml: `
limits: { order: { in_flight: 1, key: payload.customer } }
jobs: { "x:": { limits: [order], hold: 0 } }
`, asynq: asynq.Config{Queues: map[string]int{"high": 6, "low": 1}, StrictPriority: true, RetryDelayFunc: later},
		handle: func(ctx context.Context, _ *asynq.Task) error {
			if id, _ := asynq.GetTaskID(ctx); id == "first" {
				return errors.New("out of luck")
			}
			return nil
		}})
	acme := []byte(`{"customer": "acme"}`)
	s.enqueuePayload("x:job", "first", acme, asynq.Queue("high"))
	s.awaitStarts("first", 1, 5*time.Second)
	s.awaitWaiting("high", 1)
	free := s.takeAllSlots("order:acme", 1)
	const jobs = 5
	for i := range jobs {
		s.enqueuePayload("x:job", fmt.Sprint("high", i), acme, asynq.Queue("high"))
		s.enqueuePayload("x:job", fmt.Sprint("low", i), acme, asynq.Queue("low"))
	}
	s.awaitWaiting("high", 1+jobs)
	s.awaitWaiting("low", jobs)
	free()
	s.awaitStarts("low", jobs, 8*time.Second)
}
