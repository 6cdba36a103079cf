package line

import (
	"fmt"
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
				ids, parkings := make([]string, 3), make([]Parking, 3)
				for i, task := range taken {
					ids[i], parkings[i] = task.ID, Parking{Line: []string{"api", "other", "api"}[i], Since: task.At, By: task.By, AtOnce: true}
				}
				if err := c.lines.ParkAll(c.t.Context(), "default", ids, make([]any, 3), parkings); err != nil {
					c.t.Error(err)
				}
				for _, id := range ids {
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
