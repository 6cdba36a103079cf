package asynqlimit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestSortedByAnother: while another process sorts a queue, jobs that do not have to park start
// here. When the other process has stopped, this one sorts the queue.
func TestSortedByAnother(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	s.stopLimit("api", "50/1s")
	const sorter = "asynq:{default}:jt:sorter"
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	hold := func() {
		s.rdb.Set(ctx, sorter, fmt.Sprint(time.Now().Add(40*time.Millisecond).UnixMilli(), " another"), time.Second)
	}
	hold()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			hold()
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	for i := range 1000 {
		s.enqueue("x:limited", fmt.Sprintf("first%03d", i))
	}
	s.serve(member{yaml: fiftyPerSecond, asynq: asynq.Config{Concurrency: 20, Queues: map[string]int{"default": 1, "empty": 1}, TaskCheckInterval: 2 * time.Second}})
	was := asynq.QueueInfo{}
	s.await(10*time.Second, func() (bool, string) { // it has seen that they park, and leaves them to the other
		q := s.queue("default")
		same := q.Pending == was.Pending && q.Retry == was.Retry && q.Retry > 0 && q.Pending > 100
		was = q
		<-time.After(100 * time.Millisecond)
		return same, fmt.Sprintf("%+v", q)
	})
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

	stop()
	<-stopped
	for i := range 300 {
		s.enqueue("x:limited", fmt.Sprintf("second%03d", i))
	}
	s.await(5*time.Second, func() (bool, string) {
		q := s.queue("default")
		return q.Pending == 0, fmt.Sprintf("%+v", q)
	})
}
