package line

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// TestParkAmongSpoiltKeys: all tasks that park together do park, even if somebody has written
// something that makes no sense under the key of one task's lock, or of its line.
func TestParkAmongSpoiltKeys(t *testing.T) {
	for name, spoil := range map[string]func(c crowd){
		"lock": func(c crowd) {
			c.rdb.HSet(c.t.Context(), TaskKey("default", "job-1"), "unique_key", "spoilt")
			c.rdb.RPush(c.t.Context(), "spoilt", "x")
		},
		"line":  func(c crowd) { c.rdb.Set(c.t.Context(), lineKey("default", "other"), "x", 0) },
		"lines": func(c crowd) { c.rdb.Set(c.t.Context(), linesKey("default", ""), "x", 0) },
		"room": func(c crowd) {
			c.rdb.Del(c.t.Context(), roomKey("default"))
			c.rdb.Set(c.t.Context(), roomKey("default"), "x", 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBothServers(t, func(c crowd) {
				client := asynq.NewClientFromRedisClient(c.rdb)
				for i := range 3 {
					if _, err := client.Enqueue(asynq.NewTask("x", nil), asynq.TaskID(fmt.Sprintf("job-%d", i))); err != nil {
						c.t.Fatal(err)
					}
				}
				taken, err := c.lines.Take(c.t.Context(), "default", time.Now().Add(time.Minute).Unix(), 3, false)
				if err != nil || len(taken) != 3 {
					c.t.Fatal(taken, err)
				}
				spoil(c)
				park := make([]ToPark, 3)
				for i, task := range taken {
					park[i] = ToPark{ID: task.ID, How: Parking{Line: []string{"api", "other", "api"}[i], Since: task.At, By: task.By, AtOnce: true}}
				}
				if _, err := c.lines.ParkAll(c.t.Context(), "default", park); err != nil {
					c.t.Error(err)
				}
				for _, task := range park {
					id := task.ID
					info, err := asynq.NewInspectorFromRedisClient(c.rdb).GetTaskInfo("default", id)
					if err != nil || info.State != asynq.TaskStateRetry || c.rdb.ZScore(c.t.Context(), retryKey("default"), id).Err() != nil {
						c.t.Errorf("%s: %+v, %v", id, info, err)
					}
				}
				if name == "line" {
					at := time.Unix(int64(c.rdb.ZScore(c.t.Context(), retryKey("default"), "job-1").Val()), 0)
					if time.Until(at) > 2*time.Minute {
						c.t.Errorf("job-1 is in no line, and asynq brings it back at %v", at)
					}
				}
			})
		})
	}
}

// TestBringAmongSpoiltKeys: if somebody has written something that makes no sense under a key of
// one line, no task that leaves a line with others is lost: each is in its queue, or still in line.
func TestBringAmongSpoiltKeys(t *testing.T) {
	for name, spoil := range map[string]func(c crowd){
		"called": func(c crowd) { c.rdb.Set(c.t.Context(), calledKey("default", "api"), "x", 0) },
		"line":   func(c crowd) { c.rdb.Set(c.t.Context(), lineKey("default", "other"), "x", 0) },
		"lines":  func(c crowd) { c.rdb.Set(c.t.Context(), linesKey("default", ""), "x", 0) },
	} {
		t.Run(name, func(t *testing.T) {
			onBothServers(t, func(c crowd) {
				ctx, t := c.t.Context(), c.t
				client := asynq.NewClientFromRedisClient(c.rdb)
				for i := range 6 {
					if _, err := client.Enqueue(asynq.NewTask("x", nil), asynq.TaskID(fmt.Sprintf("job-%d", i))); err != nil {
						t.Fatal(err)
					}
				}
				seen, _, _, err := c.lines.Peek(ctx, "default", "p", 6, 0, time.Second)
				if err != nil {
					t.Fatal(err)
				}
				park := make([]ToPark, len(seen))
				for i, task := range seen {
					park[i] = ToPark{ID: task.ID, How: Parking{Line: []string{"api", "other"}[i%2], Since: task.At, By: task.By, AtOnce: true}}
				}
				if _, err := c.lines.ParkPending(ctx, "default", park); err != nil {
					t.Fatal(err)
				}
				spoil(c)
				_, err = c.lines.Bring(ctx, []string{"default"}, [][]Visit{{{Line: "api", Permits: 2, Next: time.Second}, {Line: "other", Permits: 2, Next: time.Second}}})
				if (err == nil) != (name == "called") {
					t.Errorf("Bring: %v", err)
				}
				pending := c.rdb.LRange(ctx, pendingKey("default"), 0, -1).Val()
				for _, task := range seen {
					state := c.rdb.HGet(ctx, TaskKey("default", task.ID), "state").Val()
					_, err := c.rdb.ZScore(ctx, retryKey("default"), task.ID).Result()
					if there := slices.Contains(pending, task.ID); state != "pending" && state != "retry" || there != (state == "pending") || there == (err == nil) {
						t.Errorf("%s is %s; in the queue: %v, in the retry set: %v", task.ID, state, there, err == nil)
					}
				}
				if len(pending) < 2 {
					t.Errorf("%q are in the queue", pending)
				}
			})
		})
	}
}
