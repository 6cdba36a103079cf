package line

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// TestOrderBehindOneThatParkedUntold: nobody could tell the limits of a task, and it has parked in the line of another limit.
// Later tasks wait until its limits are told, and then for the task.
func TestOrderBehindOneThatParkedUntold(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx := c.t.Context()
		client := asynq.NewClientFromRedisClient(c.rdb)
		for _, id := range []string{"first", "second"} {
			if _, err := client.Enqueue(asynq.NewTask("x", nil), asynq.TaskID(id)); err != nil {
				c.t.Fatal(err)
			}
		}
		taken, err := c.lines.Take(ctx, "default", time.Now().Add(time.Minute).Unix(), 2, true)
		if err != nil || len(taken) != 2 {
			c.t.Fatal(taken, err)
		}
		first, second := taken[0], taken[1]
		parked, err := c.lines.ParkAll(ctx, "default", []ToPark{{ID: first.ID, How: Parking{Line: "api", Since: first.At, By: first.By}}})
		if err != nil {
			c.t.Fatal(parked, err)
		}
		order := func(t Taken) Standing {
			c.t.Helper()
			standing, err := c.lines.Order(ctx, "default", []Ordered{{ID: t.ID, First: t.First, Limiters: []string{"customer"}}})
			if err != nil {
				c.t.Fatal(err)
			}
			return standing[0]
		}
		if got := order(second); got.IsNext || got.Behind != "" {
			c.t.Errorf("before the limits of the first are told, the second has %+v", got)
		}
		untold, err := c.lines.Untold(ctx, "default", 10)
		if err != nil || len(untold) != 1 || untold[0].ID != "first" {
			c.t.Errorf("untold: %+v, %v", untold, err)
		}
		if got := order(first); !got.IsNext {
			c.t.Errorf("the first has %+v", got)
		}
		if got := order(second); got.IsNext || got.Behind != "customer" {
			c.t.Errorf("the second has %+v", got)
		}
	})
}
