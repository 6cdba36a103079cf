package asynqlimit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestTakeNext: tasks that keep coming are taken many at a time. Tasks that come from time to
// time are taken one by one, so that other processes get some.
func TestTakeNext(t *testing.T) {
	n := 1
	for calls, tasks := 0, 0; tasks < 1000; calls++ {
		tasks += n
		if n = takeNext(n, n, 1000); calls > 1000/takenMost+5 {
			t.Fatalf("%d calls for %d tasks", calls, tasks)
		}
	}
	for range 5 {
		n = takeNext(n, 1, 1000)
	}
	if n > 2 {
		t.Errorf("takes %d at a time where one comes", n)
	}
	if n = takeNext(n, 0, 1000); n != 1 {
		t.Errorf("takes %d from an empty queue", n)
	}
	for range 10 {
		n = takeNext(n, n, 20)
	}
	if n != 5 {
		t.Errorf("takes %d at a time for 20 slots", n)
	}
}

// TestTakenAndGivenBack: each of the tasks that one call takes counts as waiting in this process,
// whether asynq has it or not. Tasks that asynq did not get go back in their order, and do not
// count any more. A task whose key somebody has spoilt does not harm others.
func TestTakenAndGivenBack(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	t.Cleanup(func() { rdb.Close() })
	client := asynq.NewClientFromRedisClient(rdb)
	for i := range 6 {
		if _, err := client.Enqueue(asynq.NewTask("x", nil), asynq.TaskID(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	if err := rdb.Set(ctx, line.TaskKey("default", "2"), "spoilt", 0).Err(); err != nil {
		t.Fatal(err)
	}
	l, err := New(rdb, config.Default(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	l.Configure(asynq.Config{Concurrency: 20})
	l.intake.most = 5
	call := line.Call{Step: line.Dequeue, Queue: "default", LeaseEnds: time.Now().Add(30 * time.Second).Unix()}
	for range 2 {
		if err := l.intake.next(ctx, call).Err(); err != nil {
			t.Fatal(err)
		}
	}
	listed := func() []string {
		ids := rdb.SMembers(ctx, "asynq:{default}:jt:room").Val()
		slices.Sort(ids)
		return ids
	}
	if ids := listed(); !slices.Equal(ids, []string{"0", "1", "3", "4"}) {
		t.Errorf("%q are listed when 0 to 4 are taken, and 2 is no task", ids)
	}
	l.intake.giveBack(ctx)
	if ids := listed(); !slices.Equal(ids, []string{"0", "1"}) {
		t.Errorf("%q are listed when asynq has 0 and 1", ids)
	}
	if ids := rdb.LRange(ctx, "asynq:{default}:pending", 0, -1).Val(); !slices.Equal(ids, []string{"5", "4", "3"}) {
		t.Errorf("%q are in the queue, from its end, want 5, 4, 3", ids)
	}
	if used, waiting := l.gate.load(); used+waiting != 2 {
		t.Errorf("%d seats are taken by 2 tasks", used+waiting)
	}
}
