package asynqlimit_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestSortedByAnother: while another process sorts a queue, jobs that do not have to park start
// here, and queues without jobs are polled now and then. When the other process has stopped, this one
// sorts the queue.
func TestSortedByAnother(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	s.stopLimit("api", "50/1s")
	const sorter = "asynq:{default}:jt:sorter"
	var stopped atomic.Bool
	for i := range 1000 {
		s.enqueue("x:limited", fmt.Sprintf("first%03d", i))
	}
	var polls atomic.Int64
	counting := s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		args := fmt.Sprint(cmd.Args()...)
		if strings.Contains(args, "asynq:{empty}:pending") {
			polls.Add(1)
		}
		if strings.Contains(args, sorter) && !stopped.Load() { // the other one goes on sorting
			s.rdb.Set(ctx, sorter, fmt.Sprint(time.Now().Add(40*time.Millisecond).UnixMilli(), " another"), time.Second)
		}
		return next(ctx, cmd)
	})
	s.serve(member{yaml: fiftyPerSecond, asynq: asynq.Config{Concurrency: 20, Queues: map[string]int{"default": 1, "empty": 1}, TaskCheckInterval: 2 * time.Second}, rdb: counting})
	was := asynq.QueueInfo{}
	s.await(10*time.Second, func() (bool, string) { // it has seen that they park, and leaves them to the other
		q := s.queue("default")
		same := q.Pending == was.Pending && q.Retry == was.Retry && q.Retry > 0 && q.Pending > 100
		was = q
		<-time.After(100 * time.Millisecond)
		return same, fmt.Sprintf("%+v", q)
	})
	before := polls.Load()
	<-time.After(time.Second)
	if n := polls.Load() - before; n > 200 {
		t.Errorf("a queue without jobs was polled %d times in a second", n)
	}
	for i := range 100 {
		s.enqueue("y:free", fmt.Sprint("free", i))
	}
	ids := s.rdb.LRange(t.Context(), "asynq:{default}:pending", 100, -1).Val() // the others
	for _, id := range ids {
		if err := s.inspector.DeleteTask("default", id); err != nil {
			t.Fatal(err)
		}
	}
	s.awaitStarts("free", 100, time.Second)

	stopped.Store(true)
	for i := range 300 {
		s.enqueue("x:limited", fmt.Sprintf("second%03d", i))
	}
	s.await(5*time.Second, func() (bool, string) {
		q := s.queue("default")
		return q.Pending == 0, fmt.Sprintf("%+v", q)
	})
}

// TestSortedByOneWithFewSlots: the process that sorts a queue has one slot, and others have many. Every
// third job does not have to wait: these do not wait for the process that sorts.
func TestSortedByOneWithFewSlots(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	s.stopLimit("api", "50/1s")
	for i := range 3000 {
		if i%3 == 2 {
			s.enqueue("y:free", fmt.Sprintf("free%04d", i))
		} else {
			s.enqueue("x:limited", fmt.Sprintf("limited%04d", i))
		}
	}
	handle := func(context.Context, *asynq.Task) error {
		<-time.After(25 * time.Millisecond)
		return nil
	}
	s.serve(member{name: "few", yaml: fiftyPerSecond, asynq: asynq.Config{Concurrency: 1}, handle: handle})
	s.awaitStarts("free", 10, 5*time.Second) // it sorts the queue
	s.serve(member{name: "many", yaml: fiftyPerSecond, asynq: asynq.Config{Concurrency: 50}, handle: handle})
	s.awaitStarts("free", 1000, 3*time.Second) // 25 s alone
}
