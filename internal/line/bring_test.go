package line

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// TestBringToHand: the process that calls tasks has the first of them in its hands, as if it had
// taken them from their queue; whoever asks gets the others, in their order.
func TestBringToHand(t *testing.T) {
	onBothServers(t, func(c crowd) {
		inspector := asynq.NewInspectorFromRedisClient(c.rdb)
		for i := range 10 {
			c.inLine("api", fmt.Sprintf("job-%d", i))
		}
		until := time.Now().Add(LeaseLasts)
		brought, err := c.lines.Bring(c.t.Context(), []Bringing{{Queue: "default", Looks: []Look{{Line: "api", Permits: 7}}, Hands: 4, Until: until, Orders: true}})
		if err != nil {
			c.t.Fatal(err)
		}
		if b := brought[0].Looks[0]; b.Called != 7 || b.Cost != 7 || b.Left != 3 {
			c.t.Errorf("7 of 10 were to be called: %+v", b)
		}
		var own []string
		for i, task := range brought[0].Taken {
			own = append(own, task.ID)
			switch {
			case task.Wait.State != Called || task.Wait.Line != "api" || task.By == "" || task.At == 0 || task.First == 0:
				c.t.Errorf("taken: %+v", task)
			case i > 0 && task.At <= brought[0].Taken[i-1].At:
				c.t.Errorf("%s was not taken after the one before it", task.ID)
			}
			if ends := c.rdb.ZScore(c.t.Context(), leaseKey("default"), task.ID).Val(); ends != float64(until.Unix()) {
				c.t.Errorf("the lease of %s ends at %v, want %d", task.ID, ends, until.Unix())
			}
			if !c.rdb.SIsMember(c.t.Context(), roomKey("default"), task.ID).Val() {
				c.t.Errorf("%s is not on the list of those that wait in processes", task.ID)
			}
			if info, err := inspector.GetTaskInfo("default", task.ID); err != nil || info.State != asynq.TaskStateActive {
				c.t.Errorf("%s for asynq: %+v, %v", task.ID, info, err)
			}
		}
		if want := []string{"job-0", "job-1", "job-2", "job-3"}; !slices.Equal(own, want) {
			c.t.Errorf("taken: %v, want %v", own, want)
		}
		taken, err := c.lines.Take(c.t.Context(), "default", until.Unix(), 50, true)
		if err != nil {
			c.t.Fatal(err)
		}
		var others []string
		for _, task := range taken {
			others = append(others, task.ID)
		}
		if want := []string{"job-4", "job-5", "job-6"}; !slices.Equal(others, want) {
			c.t.Errorf("left to whoever asks: %v, want %v", others, want)
		}
		if n := c.rdb.ZCard(c.t.Context(), retryKey("default")).Val(); n != 3 {
			c.t.Errorf("%d tasks in asynq's retry set, want 3", n)
		}

		// What was taken goes back, and comes again, first.
		back := brought[0].Taken[1]
		if err := c.lines.GiveBack(c.t.Context(), "default", back.ID, Place{By: back.By, Since: back.Wait.Since, Line: "api"}); err != nil {
			c.t.Fatal(err)
		}
		if taken, err := c.lines.Take(c.t.Context(), "default", until.Unix(), 1, true); err != nil || len(taken) != 1 || taken[0].ID != back.ID {
			c.t.Errorf("taken after it went back: %+v, %v", taken, err)
		}

		c.rdb.Set(c.t.Context(), pausedKey("default"), 1, 0)
		brought, err = c.lines.Bring(c.t.Context(), []Bringing{{Queue: "default", Looks: []Look{{Line: "api", Permits: 7}}, Hands: 4, Until: until}})
		if err != nil || len(brought[0].Taken) > 0 || brought[0].Looks[0].Called > 0 {
			c.t.Errorf("from a paused queue: %+v, %v", brought, err)
		}
	})
}

// inLine enqueues a task and parks it at once.
func (c crowd) inLine(limiter, id string) {
	c.t.Helper()
	if _, err := asynq.NewClientFromRedisClient(c.rdb).Enqueue(asynq.NewTask("x", nil), asynq.TaskID(id)); err != nil {
		c.t.Fatal(err)
	}
	taken, err := c.lines.Take(c.t.Context(), "default", time.Now().Add(time.Minute).Unix(), 1, false)
	if err != nil || len(taken) != 1 {
		c.t.Fatal(taken, err)
	}
	if err := c.lines.Park(c.t.Context(), "default", id, nil, Place{Line: limiter, Since: taken[0].At, By: taken[0].By, AtOnce: true}); err != nil {
		c.t.Fatal(err)
	}
}
