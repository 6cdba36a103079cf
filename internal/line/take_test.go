package line

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/testkit"
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

// TestCalledTasksCount: the permits of a called task count until its limiter is known to have answered it: as on their way, and
// then as asked for. If its process says nothing, they count for about a second after the task was taken.
func TestCalledTasksCount(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx, client := c.t.Context(), asynq.NewClientFromRedisClient(c.rdb)
		for i := range 6 {
			if _, err := client.Enqueue(asynq.NewTask("x", nil), asynq.TaskID(fmt.Sprint("task-", i))); err != nil {
				c.t.Fatal(err)
			}
		}
		take := func(most int) []Taken {
			c.t.Helper()
			tasks, err := c.lines.Take(ctx, "default", time.Now().Add(time.Minute).Unix(), most, false)
			if err != nil || len(tasks) != most {
				c.t.Fatalf("took %+v, %v", tasks, err)
			}
			return tasks
		}
		for _, task := range take(6) {
			if err := c.lines.Park(ctx, "default", ToPark{ID: task.ID, How: Parking{Line: "api", Cost: 2, By: task.By, AtOnce: true}}); err != nil {
				c.t.Fatal(err)
			}
		}
		if _, err := c.lines.Bring(ctx, []string{"default"}, [][]Visit{{{Line: "api", Permits: 10}}}); err != nil {
			c.t.Fatal(err)
		}
		count := func(answered ...string) (out, asking int64) {
			c.t.Helper()
			tell := make([]Answered, len(answered))
			for i, id := range answered {
				tell[i] = Answered{Line: "api", ID: id, Cost: 2}
			}
			if err := c.lines.NoteAnswers(ctx, "default", tell); err != nil {
				c.t.Fatal(err)
			}
			c.rdb.ZAdd(ctx, linesKey("default", "api"), redis.Z{Member: "api"}) // it is due
			due, err := c.lines.Due(ctx, []string{"default"}, 1, 0, nil)
			if err != nil || len(due[0].Claimed) != 1 {
				c.t.Fatalf("due %+v, %v", due, err)
			}
			return due[0].Claimed[0].Out, due[0].Claimed[0].Asking
		}
		if out, asking := count(); out != 10 || asking != 0 {
			c.t.Errorf("when they are called: %d on their way, %d asked for", out, asking)
		}
		began := time.Now()
		tasks := take(3)
		if out, asking := count(); out != 4 || asking != 6 {
			c.t.Errorf("when 3 of 5 are taken: %d on their way, %d asked for", out, asking)
		}
		if out, asking := count(tasks[0].ID, tasks[1].ID); out != 4 || asking != 2 {
			c.t.Errorf("when 2 have an answer: %d on their way, %d asked for", out, asking)
		}
		testkit.Eventually(c.t, 3*time.Second, "nothing is asked for any more", func() bool {
			out, asking := count()
			return out == 4 && asking == 0
		})
		if after := time.Since(began); after < 900*time.Millisecond {
			c.t.Errorf("nothing is asked for any more %v after the take", after)
		}
		for _, key := range []string{askingKey("default", "api"), calledKey("default", "api")} {
			if err := c.rdb.Set(ctx, key, "x", 0).Err(); err != nil {
				c.t.Fatal(err)
			}
		}
		if out, asking := count(); out != 0 || asking != 0 {
			c.t.Errorf("with keys that make no sense: %d on their way, %d asked for", out, asking)
		}
	})
}

// TestTakeAmongSpoiltKeys: somebody has written something that makes no sense under a key of ours. A take still returns all tasks
// that it takes, one of them comes first in their order, and those that wait in a process still go back to their queue, also
// if that has died.
func TestTakeAmongSpoiltKeys(t *testing.T) {
	for name, spoil := range map[string]func(c crowd){
		"room":           func(c crowd) { c.rdb.Set(c.t.Context(), roomKey("default"), "x", 0) },
		"first":          func(c crowd) { c.rdb.Set(c.t.Context(), queuePrefix("default")+"jt:first", "abc", 0) },
		"first, no text": func(c crowd) { c.rdb.RPush(c.t.Context(), queuePrefix("default")+"jt:first", "x") },
		"untold":         func(c crowd) { c.rdb.Set(c.t.Context(), untoldKey("default"), "x", 0) },
		"took":           func(c crowd) { c.rdb.RPush(c.t.Context(), tookKey("default", "p"), "x") },
	} {
		t.Run(name, func(t *testing.T) {
			onBothServers(t, func(c crowd) {
				ctx := c.t.Context()
				for i := range 4 {
					c.enqueue(fmt.Sprint("job-", i))
				}
				spoil(c)
				for no := range int64(2) {
					tasks, err := c.lines.TakeAs(ctx, Taker{"p", no + 1}, "default", time.Now().Add(-time.Minute).Unix(), 2, true)
					if err != nil || len(tasks) != 2 {
						c.t.Fatalf("took %+v, %v", tasks, err)
					}
					if again, err := c.lines.TakeAs(ctx, Taker{"p", no + 1}, "default", time.Now().Add(-time.Minute).Unix(), 2, true); err != nil || fmt.Sprint(again) != fmt.Sprint(tasks) {
						c.t.Errorf("again: %+v, %v, want %+v", again, err, tasks)
					}
					var told []Ordered
					for _, task := range tasks {
						told = append(told, Ordered{ID: task.ID, First: task.First, Limiters: []string{"crm"}})
					}
					if standings, err := c.lines.Order(ctx, "default", told); err != nil || !slices.ContainsFunc(standings, func(s Standing) bool { return s.IsNext }) {
						c.t.Errorf("none of %+v comes first: %+v, %v", told, standings, err)
					}
					if err := c.lines.GiveBack(ctx, "default", tasks[0].ID, Parking{By: tasks[0].By}); err != nil {
						c.t.Error(err)
					}
					if back, err := c.lines.GiveBackListed(ctx, "default", tasks[1].ID); err != nil || !back {
						c.t.Errorf("the room does not list the task: %v", err)
					}
				}
			})
		})
	}
}

// TestTakeAmongSpoiltAsynqKeys: somebody has written something else under asynq's key of the active tasks or of their leases. Nothing can
// be taken, and all tasks stay in their queue until that is mended, as with asynq's own dequeue.
func TestTakeAmongSpoiltAsynqKeys(t *testing.T) {
	for name, key := range map[string]string{"active": activeKey("default"), "lease": leaseKey("default")} {
		t.Run(name, func(t *testing.T) {
			onBothServers(t, func(c crowd) {
				ctx := c.t.Context()
				take := func(no int64) ([]Taken, error) {
					return c.lines.TakeAs(ctx, Taker{"p", no}, "default", time.Now().Add(time.Minute).Unix(), 2, true)
				}
				for i := range 4 {
					c.enqueue(fmt.Sprint("job-", i))
				}
				pending := func() string { return fmt.Sprint(c.rdb.LRange(ctx, pendingKey("default"), 0, -1).Val()) }
				before := pending()
				c.rdb.Set(ctx, key, "x", 0)
				for range 2 {
					if tasks, err := take(1); err == nil {
						c.t.Fatalf("took %+v", tasks)
					}
				}
				if after := pending(); after != before {
					c.t.Errorf("pending are %s, want %s", after, before)
				}
				c.rdb.Del(ctx, key)
				for no := range int64(2) {
					if tasks, err := take(no + 1); err != nil || len(tasks) != 2 {
						c.t.Errorf("mended: took %+v, %v", tasks, err)
					}
				}
			})
		})
	}
}
