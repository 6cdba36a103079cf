package line

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// TestTakeAgain: the answer to a take is lost, and the take is made again: it returns the same tasks, as they
// had waited, and takes no others. Those that somebody else has by then are left out.
func TestTakeAgain(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx, client := c.t.Context(), asynq.NewClientFromRedisClient(c.rdb)
		ids := []string{"a", "b b", "c\n3:ad", "d", "e", "f"}
		for _, id := range ids {
			if _, err := client.Enqueue(asynq.NewTask("x", nil), asynq.TaskID(id)); err != nil {
				c.t.Fatal(err)
			}
		}
		take := func(no int64, most int, orders bool) []Taken {
			c.t.Helper()
			tasks, err := c.lines.TakeAs(ctx, Taker{"p", no}, "default", time.Now().Add(time.Minute).Unix(), most, orders)
			if err != nil {
				c.t.Fatal(err)
			}
			return tasks
		}
		first := take(1, 1, false)
		if err := c.lines.Park(ctx, "default", ToPark{ID: "a", How: Parking{Line: "api", By: first[0].By, AtOnce: true}}); err != nil {
			c.t.Fatal(err)
		}
		if _, err := c.lines.Bring(ctx, []string{"default"}, [][]Visit{{{Line: "api", Permits: 1}}}); err != nil {
			c.t.Fatal(err)
		}
		took := take(2, 4, true)
		if len(took) != 4 || took[0].ID != "a" || took[0].Wait.State != Called {
			c.t.Fatalf("took %+v", took)
		}
		for _, most := range []int{4, 1} {
			if again := take(2, most, true); fmt.Sprint(again) != fmt.Sprint(took) {
				c.t.Errorf("again, for %d: %+v, want %+v", most, again, took)
			}
		}
		if err := c.lines.GiveBack(ctx, "default", "b b", Parking{By: took[1].By}); err != nil {
			c.t.Fatal(err)
		}
		if tasks, err := c.lines.Take(ctx, "default", time.Now().Add(time.Minute).Unix(), 1, false); err != nil || len(tasks) != 1 || tasks[0].ID != "b b" {
			c.t.Fatalf("another took %+v, %v", tasks, err)
		}
		if again := take(2, 4, false); len(again) != 3 || again[0].ID != "a" || again[1].ID != ids[2] || again[2].ID != "d" {
			c.t.Errorf("again: %+v, want all but the one that another has", again)
		}
		if next := take(3, 4, false); len(next) != 2 || next[0].ID != "e" {
			c.t.Errorf("the next take: %+v", next)
		}
		if none := take(4, 4, false); len(none) != 0 {
			c.t.Errorf("took %+v of an empty queue", none)
		}
		if n := c.rdb.Exists(ctx, tookKey("default", "p")).Val(); n != 0 {
			c.t.Error("what it took is remembered although it takes nothing any more")
		}
	})
}
