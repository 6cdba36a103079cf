package asynqlimit

import (
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
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // not called
		defer rdb.Close()
		limits, err := New(rdb, config.Default(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer limits.Close()
		limits.Configure(asynq.Config{Concurrency: 1})
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

// TestPutOffIsNoRun: a handler that acquires its permits, and has to wait for them, has not run. So the
// gate does not learn from it how soon slots are free.
func TestPutOffIsNoRun(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // not called
	defer rdb.Close()
	limits, err := New(rdb, config.Default(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer limits.Close()
	limits.Configure(asynq.Config{})
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
