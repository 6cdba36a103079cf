package line

import (
	"fmt"
	"slices"
	"strings"
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

// TestBringWaitsForTheHead: the first task of a line parked just now, long after it came, and the second before that. Where slots
// belong to processes, the second does not overtake it. Where they belong to the fleet, no slot is left empty for it.
func TestBringWaitsForTheHead(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx, t := c.t.Context(), c.t
		for name, waits := range map[string]bool{MaxInFlight + "x:": true, InFlight + "seat": false} {
			for i, id := range []string{"head", "second"} {
				id, since := name+id, time.Now().Add(-time.Hour).UnixMicro()+int64(i)
				c.enqueue(id)
				if tasks, err := c.lines.Take(ctx, "default", time.Now().Add(time.Minute).Unix(), 1, false); err != nil || len(tasks) != 1 {
					t.Fatal(tasks, err)
				}
				if err := c.lines.Park(ctx, "default", ToPark{ID: id, How: Parking{Line: name, Since: since, Cost: 1, AtOnce: i == 1}}); err != nil {
					t.Fatal(err)
				}
			}
			task := TaskKey("default", name+"head")
			parked := strings.Fields(c.rdb.HGet(ctx, task, "jt").Val())
			parked[2] = fmt.Sprint(time.Now().Add(1500 * time.Millisecond).UnixMilli()) // this test may be slow
			if err := c.rdb.HSet(ctx, task, "jt", strings.Join(parked, " ")).Err(); err != nil {
				t.Fatal(err)
			}
			visit := Visit{Line: name, Permits: 1, InOrder: true, Next: time.Second}
			called := c.bring(visit)[0].Called
			if want := map[bool]int64{true: 0, false: 1}[waits]; called != want {
				t.Errorf("%s: %d tasks are called while the head has just parked, want %d", name, called, want)
			}
			for end := time.Now().Add(5 * time.Second); called == 0 && time.Now().Before(end); {
				called = c.bring(visit)[0].Called
			}
			tasks, err := c.lines.Take(ctx, "default", time.Now().Add(time.Minute).Unix(), 2, false)
			if want := map[bool]string{true: "head", false: "second"}[waits]; err != nil || len(tasks) != 1 || tasks[0].ID != name+want {
				t.Errorf("%s: called %+v, %v; want the %s", name, tasks, err, want)
			}
		}
	})
}
