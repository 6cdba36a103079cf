package line

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// TestParkPending: tasks park as they were seen in their queue. Whatever asynq's tools have done
// with a task since then stays as it is: it may be gone, somewhere else, or another task of the
// same id.
func TestParkPending(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx, t := c.t.Context(), c.t
		client, inspector := asynq.NewClientFromRedisClient(c.rdb), asynq.NewInspectorFromRedisClient(c.rdb)
		enqueue := func(id, payload string) {
			t.Helper()
			if _, err := client.Enqueue(asynq.NewTask("x", []byte(payload)), asynq.TaskID(id)); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range []string{"taken", "parks", "deleted", "again", "archived", "twice", "spoilt", "last"} {
			enqueue(id, "first")
		}
		c.rdb.RPush(ctx, pendingKey("default"), "twice") // by hand: it is there twice
		c.rdb.Del(ctx, TaskKey("default", "spoilt"))
		c.rdb.Set(ctx, TaskKey("default", "spoilt"), "x", 0)
		seen, _, _, err := c.lines.Peek(ctx, "default", "p", 100, 0, time.Second)
		if err != nil || len(seen) != 9 || seen[0].ID != "twice" || seen[1].ID != "taken" || seen[8].ID != "last" {
			t.Fatalf("%+v, %v", seen, err)
		}
		for _, task := range seen {
			if (task.Message == "") != (task.ID == "spoilt") {
				t.Errorf("the message of %s is %q", task.ID, task.Message)
			}
		}

		c.rdb.RPop(ctx, pendingKey("default"))
		if taken, err := c.lines.Take(ctx, "default", time.Now().Add(time.Minute).Unix(), 1, false); err != nil || len(taken) != 1 || taken[0].ID != "taken" {
			t.Fatal(taken, err)
		}
		for _, id := range []string{"deleted", "again"} {
			if err := inspector.DeleteTask("default", id); err != nil {
				t.Fatal(err)
			}
		}
		enqueue("again", "second")
		if err := inspector.ArchiveTask("default", "archived"); err != nil {
			t.Fatal(err)
		}
		park := make([]ToPark, len(seen))
		for i, task := range seen {
			text, _ := task.Message.(string)
			park[i] = ToPark{ID: task.ID, Message: WithError(text, "has to wait", time.Now()), How: Parking{Line: "api", By: task.By, AtOnce: true}}
		}
		parked, err := c.lines.ParkPending(ctx, "default", park)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]asynq.TaskState{
			"parks": asynq.TaskStateRetry, "twice": asynq.TaskStateRetry, "last": asynq.TaskStateRetry,
			"taken": asynq.TaskStateActive, "again": asynq.TaskStatePending, "archived": asynq.TaskStateArchived,
		}
		for i, p := range parked {
			id := seen[i].ID
			if waits := want[id] == asynq.TaskStateRetry; p != (waits && (id != "twice" || i == 0)) {
				t.Errorf("%s, the task %d: parked is %v", id, i, p)
			}
		}
		for id, state := range want {
			payload := map[bool]string{true: "second", false: "first"}[id == "again"]
			if info, err := inspector.GetTaskInfo("default", id); err != nil || info.State != state || string(info.Payload) != payload {
				t.Errorf("%s: %+v, %v, want it %v with %q", id, info, err, state, payload)
			}
		}
		if _, err := inspector.GetTaskInfo("default", "deleted"); err == nil {
			t.Error("a deleted task is back")
		}
		if line := c.rdb.ZRange(ctx, lineKey("default", "api"), 0, -1).Val(); fmt.Sprint(line) != "[twice parks last]" {
			t.Errorf("%q are in line", line)
		}
		if lease := c.rdb.ZCard(ctx, leaseKey("default")).Val(); lease != 1 {
			t.Errorf("%d leases for one active task", lease)
		}
	})
}

// TestOneProcessSorts: a queue is sorted by one process at a time, and others see only its next
// tasks. A process that stops, a clock that was set back and a foreign value hold up the others
// for a short time only.
func TestOneProcessSorts(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx, t := c.t.Context(), c.t
		client := asynq.NewClientFromRedisClient(c.rdb)
		for range 10 {
			if _, err := client.Enqueue(asynq.NewTask("x", nil)); err != nil {
				t.Fatal(err)
			}
		}
		peeks := func(process string, sorts bool) bool {
			t.Helper()
			seen, does, _, err := c.lines.Peek(ctx, "default", process, 10, 2, time.Second)
			if want := map[bool]int{true: 10, false: 2}[does]; err != nil || len(seen) != want {
				t.Fatalf("%s saw %d tasks, %v, want %d", process, len(seen), err, want)
			}
			return does == sorts
		}
		// quick repeats steps that a slow machine may have spread over more time than a process sorts alone.
		quick := func(steps func() bool) bool {
			for range 100 {
				if began := time.Now(); steps() {
					return true
				} else if time.Since(began) < sortsFor/2 {
					return false
				}
			}
			return false
		}
		if !quick(func() bool {
			return peeks("one", true) && peeks("two", false) && peeks("one", true) && peeks("two", false)
		}) {
			t.Error("two processes sort, or none")
		}
		for began := time.Now(); !peeks("two", true); {
			if time.Since(began) > 3*time.Second {
				t.Fatal("nobody sorts in place of a process that has stopped")
			}
		}
		if !quick(func() bool { return peeks("two", true) && peeks("one", false) }) {
			t.Error("two processes sort")
		}
		key := sorterKey("default")
		c.rdb.Set(ctx, key, fmt.Sprintf("%d two", time.Now().Add(time.Hour).UnixMilli()), 0)
		if !peeks("one", true) {
			t.Error("the clock was set back, and nobody sorts")
		}
		for _, foreign := range []string{"", "two", "x two", "99999999999999999999999999 two"} {
			if c.rdb.Set(ctx, key, foreign, 0); !peeks("one", true) {
				t.Errorf("%q is there, and nobody sorts", foreign)
			}
		}
		c.rdb.Del(ctx, key)
		if c.rdb.HSet(ctx, key, "a", "b"); !peeks("one", true) {
			t.Error("a hash is there, and nobody sorts")
		}
	})
}

// TestParkInTheirOrder: several processes look at the same tasks of a queue, take some and park
// others. Whoever comes first with which of them, the tasks are in line in the order of the queue.
func TestParkInTheirOrder(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx, t := c.t.Context(), c.t
		client := asynq.NewClientFromRedisClient(c.rdb)
		var want []string
		for i := range 60 {
			want = append(want, fmt.Sprintf("job-%02d", i))
			if _, err := client.Enqueue(asynq.NewTask("x", nil), asynq.TaskID(want[i])); err != nil {
				t.Fatal(err)
			}
		}
		peek := func(n int) []Taken {
			seen, _, _, err := c.lines.Peek(ctx, "default", "p", n, 0, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			return seen
		}
		park := func(parks func(context.Context, string, []ToPark) ([]bool, error), tasks []Taken, since bool) {
			park := make([]ToPark, len(tasks))
			for i, task := range tasks {
				if park[i] = (ToPark{ID: task.ID, How: Parking{Line: "api", By: task.By, AtOnce: true}}); since {
					park[i].How.Since = task.At
				}
			}
			if _, err := parks(ctx, "default", park); err != nil {
				t.Fatal(err)
			}
		}
		many, few := peek(50), peek(8)
		park(c.lines.ParkPending, few, false)
		taken, err := c.lines.Take(ctx, "default", time.Now().Add(time.Minute).Unix(), 8, false)
		if err != nil {
			t.Fatal(err)
		}
		park(c.lines.ParkAll, taken, true)
		park(c.lines.ParkPending, many, false)
		park(c.lines.ParkPending, peek(50), false)
		if line := c.rdb.ZRange(ctx, lineKey("default", "api"), 0, -1).Val(); !slices.Equal(line, want) {
			t.Errorf("in line are %q", line)
		}
	})
}

// TestPeekLarge: one call reads no more than so many bytes. Peek goes on as long as it may, and says whether
// there are other tasks.
func TestPeekLarge(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx, t := c.t.Context(), c.t
		const tasks = 50
		var want []string
		for i := range tasks {
			want = append(want, fmt.Sprintf("job-%02d", i))
			if _, err := asynq.NewClientFromRedisClient(c.rdb).Enqueue(asynq.NewTask("x", make([]byte, 50<<10)), asynq.TaskID(want[i])); err != nil {
				t.Fatal(err)
			}
		}
		const each = peekBytes/(50<<10) + 1
		for _, tt := range []struct {
			most, came int
			lasts      time.Duration
			cut        bool
		}{
			{tasks, each, 0, true},
			{each, each, 0, false},
			{each + 5, each + 5, time.Minute, false},
			{tasks, tasks, time.Minute, false},
			{2 * tasks, tasks, time.Minute, false},
		} {
			seen, sorts, cut, err := c.lines.Peek(ctx, "default", "p", tt.most, 2, tt.lasts)
			var ids []string
			for _, task := range seen {
				ids = append(ids, task.ID)
			}
			if err != nil || !sorts || cut != tt.cut || !slices.Equal(ids, want[:tt.came]) {
				t.Errorf("%d at most, in %v: %q, sorts %v, cut %v, %v, want %d", tt.most, tt.lasts, ids, sorts, cut, err, tt.came)
			}
		}
	})
}

// enqueue adds a task to the queue.
func (c crowd) enqueue(id string) {
	c.t.Helper()
	if _, err := asynq.NewClientFromRedisClient(c.rdb).Enqueue(asynq.NewTask("x", nil), asynq.TaskID(id)); err != nil {
		c.t.Fatal(err)
	}
}

// parkJobs parks job-0 and so on, straight from the queue.
func (c crowd) parkJobs(n int) {
	c.t.Helper()
	for i := range n {
		c.enqueue(fmt.Sprint("job-", i))
	}
	for left := n; left > 0; {
		seen, _, _, err := c.lines.Peek(c.t.Context(), "default", "p", min(left, 500), 0, time.Second)
		if err != nil || len(seen) == 0 {
			c.t.Fatalf("%d of %d left: %v", left, n, err)
		}
		park := make([]ToPark, len(seen))
		for i, task := range seen {
			park[i] = ToPark{ID: task.ID, How: Parking{Line: "api", By: task.By, AtOnce: true}}
		}
		if _, err := c.lines.ParkPending(c.t.Context(), "default", park); err != nil {
			c.t.Fatal(err)
		}
		left -= len(seen)
	}
}

// TestCalledBesideReturned: a task that went back to its queue and has asked for nothing does not come
// between tasks that were called, whichever of them came first.
func TestCalledBesideReturned(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx, t := c.t.Context(), c.t
		take := func() (came []string) {
			t.Helper()
			tasks, err := c.lines.Take(ctx, "default", time.Now().Add(time.Minute).Unix(), 10, false)
			for _, task := range tasks {
				came = append(came, task.ID)
			}
			if err != nil {
				t.Fatal(err)
			}
			return came
		}
		c.enqueue("returned")
		take()
		c.parkJobs(3)
		c.bring(Visit{Line: "api", Permits: 2, Next: time.Second})
		if err := c.lines.GiveBack(ctx, "default", "returned", Parking{Untried: true}); err != nil {
			t.Fatal(err)
		}
		c.bring(Visit{Line: "api", Permits: 1, Next: time.Second})
		if came, want := take(), []string{"job-0", "job-1", "job-2", "returned"}; !slices.Equal(came, want) {
			t.Errorf("%q came, want %q", came, want)
		}
	})
}

// TestCalledInTheirOrder: tasks that are called while others, called before, are still in the
// queue stand behind these, and ahead of tasks that never waited.
func TestCalledInTheirOrder(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx, t := c.t.Context(), c.t
		c.parkJobs(8)
		c.enqueue("fresh")
		for _, permits := range []int64{3, 1, 2} {
			c.bring(Visit{Line: "api", Permits: permits, Next: time.Second})
		}
		var came []string
		taken, err := c.lines.Take(ctx, "default", time.Now().Add(time.Minute).Unix(), 10, false)
		for _, task := range taken {
			came = append(came, task.ID)
		}
		if want := []string{"job-0", "job-1", "job-2", "job-3", "job-4", "job-5", "fresh"}; err != nil || !slices.Equal(came, want) {
			t.Errorf("%q came, %v, want %q", came, err, want)
		}
	})
}
