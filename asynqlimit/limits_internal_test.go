package asynqlimit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// TestMaxWaitingOfPool: what a pool of the configuration says holds for servers of any program, and
// each server has that of the pool of its name.
func TestMaxWaitingOfPool(t *testing.T) {
	cfg, err := config.Parse("config.yaml", []byte(`
pools:
  - { name: default, concurrency: 10, max_waiting: 5 }
  - { name: other, concurrency: 10, queues: { other: 1 } }
`))
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // not called
	defer rdb.Close()
	for opts, want := range map[*Options]int{
		{}:                          5,
		{MaxWaiting: 7}:             7,
		{Name: "other"}:             40,
		{Name: "none of the pools"}: 5,
		{Name: "default"}:           5,
	} {
		limits, err := New(rdb, cfg, *opts)
		if err != nil {
			t.Fatal(err)
		}
		limits.Configure(asynq.Config{})
		if got := limits.gate.size.room; got != want {
			t.Errorf("%+v: %d may wait, want %d", *opts, got, want)
		}
		another := limits.Another(*opts) // it has another name in metrics
		another.Configure(asynq.Config{})
		if got := another.gate.size.room; got != want {
			t.Errorf("%+v, again: %d may wait, want %d", *opts, got, want)
		}
		if err := errors.Join(another.Close(), limits.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestCompetingGivesUp: a task that competes for a slot and gets none, because the process shuts down or
// the slots stay in use, goes back to its queue as one that was not tried.
func TestCompetingGivesUp(t *testing.T) {
	t.Parallel()
	for _, drains := range []bool{true, false} {
		limits := offline(t, 1)
		g := limits.gate
		g.admit("default", 0)
		s := &position{g: g, queue: "default", competes: true}
		g.enter(s, nil)
		j := &job{l: limits, a: &attempt{position: s, asked: make(chan struct{}), wait: line.Wait{Line: "api"}}}
		j.a.start()
		if drains {
			limits.drain()
		}
		if err := j.compete(t.Context()); !isPutOff(err) {
			t.Errorf("%v: want it put off", err)
		}
		if f, parking := j.a.settle(line.Archive); f != returns || !parking.Untried {
			t.Errorf("drains %v: %v %+v", drains, f, parking)
		}
	}
}

// TestCompetingLeavesTime: a task with a timeout competes for a quarter of it at most, as it waits for
// anything else.
func TestCompetingLeavesTime(t *testing.T) {
	t.Parallel()
	limits := offline(t, 1)
	g := limits.gate
	g.admit("default", 0)
	s := &position{g: g, queue: "default", competes: true}
	g.enter(s, nil)
	j := &job{l: limits, a: &attempt{position: s, asked: make(chan struct{})}}
	j.a.start()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := j.compete(ctx); !isPutOff(err) || ctx.Err() != nil {
		t.Errorf("%v, and the task's time: %v; want it put off in time", err, ctx.Err())
	}
}

// TestTakenAgain: a task that went back to its queue may be taken again by the same process at once. asynq
// gets it when it is done with the attempt before. The task has not lost the wait that it had.
func TestTakenAgain(t *testing.T) {
	limits := offline(t, 2)
	g, in := limits.gate, limits.intake
	since := time.Now().Add(-5 * time.Second)
	limits.attempts.wentBack(&attempt{queue: "default", id: "a", competed: since})
	for _, id := range []string{"a", "b"} {
		s, _ := g.admit("default", 0)
		in.put("default", line.Taken{ID: id, Message: id}, nil, line.Standing{}, s, time.Now())
	}
	first, ok := in.pop()
	if !ok || first.message != "b" {
		t.Errorf("asynq gets %v", first.message)
	}
	if early, ok := in.pop(); ok {
		t.Errorf("asynq gets %v, and may not be done with it", early.message)
	}
	if wait := in.soonest(); wait > line.Settled {
		t.Errorf("asynq's next poll ends in %v, and the task is ready sooner", wait)
	}
	again := limits.attempts.get("default", "a")
	if got := again.position.waitsSince(); !got.Equal(since) {
		t.Errorf("it has waited since %v, want %v", got, since)
	}
	again.from = time.Now()
	if again, ok := in.pop(); !ok || again.message != "a" {
		t.Errorf("asynq gets %v, want the task", again.message)
	}
}

// TestTakenAgainHoldsNoSlot: until asynq gets such a task, its slot is for others.
func TestTakenAgainHoldsNoSlot(t *testing.T) {
	limits := offline(t, 1)
	g, in := limits.gate, limits.intake
	limits.attempts.wentBack(&attempt{queue: "default", id: "a", competed: time.Now()})
	for _, id := range []string{"a", "b"} {
		s, ok := g.admit("default", 0)
		if !ok || !s.slot {
			t.Fatalf("no slot for %s", id)
		}
		in.put("default", line.Taken{ID: id, Message: id}, nil, line.Standing{}, s, time.Now())
	}
	if first, ok := in.pop(); !ok || first.message != "b" {
		t.Errorf("asynq gets %v", first.message)
	}
	again := limits.attempts.get("default", "a").position
	if !again.competing() || again.toSlotNow() {
		t.Error("it does not compete for the slot")
	}
	again.leave()
	if used, waiting := g.load(); used != 1 || waiting != 0 {
		t.Errorf("%d slots in use, %d in the room", used, waiting)
	}
	full := newGate(gateSize{slots: 1})
	s, _ := full.admit("default", 0)
	if s.toCompete(); !s.slot {
		t.Error("it has left its slot, and there is no room")
	}
}

// offline is limits for a server with so many slots whose Redis is not called.
func offline(t *testing.T, slots int) *Limits {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	limits, err := New(rdb, config.Default(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(limits.Close(), rdb.Close()) })
	limits.Configure(asynq.Config{Concurrency: slots})
	return limits
}

// TestPutOffIsNoRun: a handler that acquires its permits, and has to wait for them, has not run. So the
// gate does not learn from it how soon slots are free.
func TestPutOffIsNoRun(t *testing.T) {
	limits := offline(t, 1)
	g := limits.gate
	g.lasts = 300 * time.Millisecond
	j := &job{l: limits, a: &attempt{position: &position{g: g}}, task: asynq.NewTask("x", nil), limiter: make([]*throttle.Limiter, 1)}
	if j.ran(time.Millisecond, &ThrottledError{}); g.lasts != 300*time.Millisecond {
		t.Errorf("handlers last %v", g.lasts)
	}
	if j.ran(time.Millisecond, nil); g.lasts == 300*time.Millisecond {
		t.Error("it does not learn from handlers that ran")
	}
}
