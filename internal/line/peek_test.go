package line

import (
	"fmt"
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
		seen, err := c.lines.Peek(ctx, "default", 100)
		if err != nil || len(seen) != 9 || seen[0].ID != "twice" || seen[1].ID != "taken" || seen[8].ID != "last" {
			t.Fatalf("%+v, %v", seen, err)
		}
		for i, task := range seen {
			if i > 0 && task.At <= seen[i-1].At {
				t.Errorf("%s arrives at %d, the one before it at %d", task.ID, task.At, seen[i-1].At)
			}
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
			park[i] = ToPark{ID: task.ID, Message: WithError(text, "has to wait", time.Now()), How: Parking{Line: "api", Since: task.At, By: task.By, AtOnce: true}}
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
