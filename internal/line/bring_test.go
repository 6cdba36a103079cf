package line

import (
	"slices"
	"testing"
	"time"
)

// TestBringKeepsTheOrder: tasks are called much faster than anybody takes them. They are taken in the order
// in which they were called, and in the end all of them are.
func TestBringKeepsTheOrder(t *testing.T) {
	onBothServers(t, func(c crowd) {
		const tasks, batch = 3000, 300
		c.parkJobs(tasks)
		ids := c.rdb.ZRange(c.t.Context(), lineKey("default", "api"), 0, -1).Val()
		var taken []string
		for len(taken) < tasks {
			for range tasks / batch {
				if _, err := c.lines.Bring(c.t.Context(), []string{"default"}, [][]Visit{{{Line: "api", Permits: batch, Next: time.Second}}}); err != nil {
					c.t.Fatal(err)
				}
			}
			came, err := c.lines.Take(c.t.Context(), "default", time.Now().Add(time.Minute).Unix(), batch, false)
			if err != nil || len(came) == 0 {
				c.t.Fatalf("%d of %d tasks were taken: %v", len(taken), tasks, err)
			}
			for _, task := range came {
				taken = append(taken, task.ID)
			}
		}
		if !slices.Equal(taken, ids) {
			i := slices.IndexFunc(taken, func(id string) bool { return id != ids[slices.Index(taken, id)] })
			c.t.Errorf("task %d that was taken is %s, want %s", i, taken[i], ids[i])
		}
	})
}
