package asynqlimit_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestCalledLateKeepsItsTurn: Redis is so far away that the slot of the server, which was left to a called
// job, is another job's when the called one comes. It gets the next one, although it has to wait for that
// for longer than it keeps a slot of the limit in flight.
func TestCalledLateKeepsItsTurn(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	free := s.takeAllSlots("one", 1)
	far := s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if slices.ContainsFunc(cmd.Args(), func(arg any) bool { return arg == "!in_flight:one" }) { // a visit of the line, or a job that parks there
			<-time.After(100 * time.Millisecond)
		}
		return next(ctx, cmd)
	})
	const called = 2
	for i := range called {
		s.enqueue("x:limited", fmt.Sprint("called", i), asynq.Queue("high"))
	}
	s.serve(member{yaml: `
limits: { one: { in_flight: 1 } }
jobs: { "x:limited": { limits: [one], hold: 0 } }
`, rdb: far, asynq: asynq.Config{Concurrency: 2, StrictPriority: true, Queues: map[string]int{"high": 6, "low": 1}}, handle: lasting(2500 * time.Millisecond)})
	s.awaitWaiting("high", called)
	for i := range 30 {
		s.enqueue("y:free", fmt.Sprintf("fresh%04d", i), asynq.Queue("low"))
	}
	s.awaitStarts("fresh", 2, 5*time.Second)
	free()
	s.awaitStarts("called", called, 15*time.Second) // 37 s if they come last
}

// TestCalledWithoutASlotCountsOnce: a job that was called for max_in_flight finds all slots of its server in use for so long that it
// has to ask for other permits. While it runs, others in line for permits are called as soon as there are any.
func TestCalledWithoutASlotCountsOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	first, last := make(chan struct{}), make(chan struct{})
	s.serve(member{yaml: `
limits: { api: { rate: 1/100ms } }
jobs: { "x:one": { limits: [api], max_in_flight: 1, hold: 1s }, "x:others": { limits: [api], hold: 0 } }
`, asynq: asynq.Config{Concurrency: 2, StrictPriority: true, Queues: map[string]int{"high": 2, "default": 1}}, handle: func(ctx context.Context, task *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		switch {
		case id == "one0":
			<-first
		case id == "one1":
			<-last
		case task.Type() == "y:long":
			return lasting(600*time.Millisecond)(ctx, task)
		}
		return nil
	}})
	s.enqueue("x:one", "one0")
	s.awaitStarts("one0", 1, 5*time.Second)
	s.enqueue("x:one", "one1")
	s.await(5*time.Second, func() (bool, string) { q := s.queue("default"); return q.Retry == 1, fmt.Sprintf("%+v", q) })
	for i := range 8 {
		s.enqueue("y:long", fmt.Sprint("long", i), asynq.Queue("high"))
	}
	s.awaitStarts("long", 1, 5*time.Second)
	close(first)
	s.awaitStarts("one1", 1, 10*time.Second)
	const others = 30
	for i := range others {
		s.enqueue("x:others", fmt.Sprint("other", i))
	}
	defer close(last)
	s.awaitStarts("other", others, 15*time.Second)
}
