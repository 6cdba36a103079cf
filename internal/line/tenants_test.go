package line

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// crowd has tasks of tenants in line for the limiter api, on one server.
type crowd struct {
	t     *testing.T
	rdb   *redis.Client
	lines *Lines
}

func onBothServers(t *testing.T, test func(crowd)) {
	for name, start := range map[string]func(testing.TB) string{
		"redis": func(t testing.TB) string { return redistest.Start(t) }, "miniredis": func(t testing.TB) string { return miniredis.RunT(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			rdb := redis.NewClient(&redis.Options{Addr: start(t)})
			t.Cleanup(func() { rdb.Close() })
			test(crowd{t, rdb, New(rdb)})
		})
	}
}

// park enqueues tasks and parks them at once, in the lines of their tenants.
func (c crowd) park(tenant string, n int, cost int64) {
	c.t.Helper()
	client := asynq.NewClientFromRedisClient(c.rdb)
	for i := range n {
		if _, err := client.Enqueue(asynq.NewTask("x", nil), asynq.TaskID(fmt.Sprintf("%s-%03d", tenant, i))); err != nil {
			c.t.Fatal(err)
		}
	}
	for {
		taken, err := c.lines.Take(c.t.Context(), "default", time.Now().Add(time.Minute).Unix(), 50, false)
		if err != nil {
			c.t.Fatal(err)
		}
		if len(taken) == 0 {
			return
		}
		park := make([]ToPark, len(taken))
		for i, task := range taken {
			park[i] = ToPark{ID: task.ID, How: Parking{Line: OfTenant("api", tenant), Since: task.At, Cost: cost, By: task.By, AtOnce: true}}
		}
		if _, err := c.lines.ParkAll(c.t.Context(), "default", park); err != nil {
			c.t.Fatal(err)
		}
	}
}

// bring calls tasks of tenants, with the given permits and start tags for each.
func (c crowd) bring(visits ...Visit) []Brought {
	c.t.Helper()
	b, err := c.lines.Bring(c.t.Context(), []string{"default"}, [][]Visit{append(visits, Visit{Line: SharedBy("api")})})
	if err != nil {
		c.t.Fatal(err)
	}
	return b[0]
}

func (c crowd) check(when string, tasks int64, tenants ...string) {
	c.t.Helper()
	w, err := c.lines.Tenants(c.t.Context(), []TenantsOf{{Queue: "default", Limiter: "api", Most: 100}})
	if err != nil {
		c.t.Fatal(err)
	}
	got := map[string]int64{}
	for _, t := range w[0].First {
		got[t.Name] = t.Tasks
	}
	lengths, err := c.lines.Lengths(c.t.Context(), []string{"default"}, []string{SharedBy("api")})
	if err != nil {
		c.t.Fatal(err)
	}
	sum := int64(0)
	for _, n := range got {
		sum += n
	}
	if n := lengths[SharedBy("api")][0].Waiting; n != tasks || len(got) != len(tenants) || w[0].All != int64(len(tenants)) || sum != tasks {
		c.t.Errorf("%s: %d tasks in line, of %v; want %d of %v", when, n, got, tasks, tenants)
	}
	for _, name := range tenants {
		if got[name] == 0 {
			c.t.Errorf("%s: tenant %s is not in line", when, name)
		}
	}
}

// TestLinesOfTenants: which tenants are in line and with how many tasks, through everything that
// happens to tasks. Nothing is left when all are gone.
func TestLinesOfTenants(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx := c.t.Context()
		c.park("a", 30, 1)
		c.park("b", 20, 2)
		c.check("parked", 50, "a", "b")
		due, err := c.lines.Due(ctx, []string{"default"}, 10, 0, nil)
		if err != nil || len(due[0].Claimed) != 1 || due[0].Claimed[0] != (Claimed{Name: SharedBy("api"), Tasks: 50, Cost: 1}) {
			c.t.Fatalf("due: %+v, %v", due, err)
		}
		b := c.bring(Visit{Line: OfTenant("api", "a"), Permits: 4, Weight: 1, Start: 0}, Visit{Line: OfTenant("api", "b"), Permits: 8, Weight: 4, Start: 0})
		if b[0].Called != 4 || b[1].Called != 4 || b[1].Cost != 8 {
			c.t.Errorf("called %+v, want 4 each, for 8 permits of b", b)
		}
		c.check("called", 42, "a", "b")
		order, err := c.rdb.LRange(ctx, "asynq:{default}:pending", 0, -1).Result()
		// The head is last. The tags of a are 0, 1, 2 and 3; those of b are 0, .5, 1 and 1.5.
		if err != nil || fmt.Sprint(order) != "[a-003 a-002 b-003 b-002 a-001 b-001 b-000 a-000]" {
			c.t.Errorf("called in the order %v, %v", order, err)
		}
		w, _ := c.lines.Tenants(ctx, []TenantsOf{{Queue: "default", Limiter: "api", Most: 100}})
		if first := w[0].First; len(first) != 2 || first[0].Name != "b" || first[0].Start != 2 || first[1].Start != 4 || first[0].Cost != 2 {
			c.t.Errorf("tags %+v, want 2 for b and 4 for a", w)
		}
		// Some are deleted behind our back, and one is run by hand.
		inspector := asynq.NewInspectorFromRedisClient(c.rdb)
		for i := 4; i < 30; i++ {
			if err := inspector.DeleteTask("default", fmt.Sprintf("a-%03d", i)); err != nil {
				c.t.Fatal(err)
			}
		}
		if err := inspector.RunTask("default", "b-010"); err != nil {
			c.t.Fatal(err)
		}
		taken, err := c.lines.Take(ctx, "default", time.Now().Add(time.Minute).Unix(), 50, false)
		if err != nil || len(taken) != 9 {
			c.t.Fatalf("took %d, %v", len(taken), err)
		}
		c.check("one taken by hand", 41, "a", "b")
		c.bring(Visit{Line: OfTenant("api", "a"), Permits: 1, Weight: 1, Start: 4})
		c.check("deleted tasks leave", 15, "b")
		if n, err := c.lines.Release(ctx, "default", SharedBy("api")); n != 15 || err != nil {
			c.t.Errorf("released %d, %v", n, err)
		}
		for _, key := range []string{"tenants:api", "line:api\ta", "line:api\tb", "tasks", "lines"} {
			if n := c.rdb.Exists(ctx, "asynq:{default}:jt:"+key).Val(); n != 0 {
				c.t.Errorf("%q is left", key)
			}
		}
	})
}

// TestClearGone: tasks that somebody deleted, archived, ran by hand, or enqueued again for another tenant leave
// the lines of their tenants, and tenants without tasks leave. Those that wait stay, with those behind them.
// Nothing is left when all are gone, whatever else somebody has written there.
func TestClearGone(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx, inspector := c.t.Context(), asynq.NewInspectorFromRedisClient(c.rdb)
		clearAll := func() {
			c.t.Helper()
			for more := true; more; {
				var err error
				if more, err = c.lines.ClearGone(ctx, "default", "api"); err != nil {
					c.t.Fatal(err)
				}
			}
		}
		end := func(tenant string, n int, end func(queue, id string) error) {
			c.t.Helper()
			for i := range n {
				if err := end("default", fmt.Sprintf("%s-%03d", tenant, i)); err != nil {
					c.t.Fatal(err)
				}
			}
		}
		c.park("whole", 3, 1)
		clearAll()
		c.check("nothing is gone", 3, "whole")
		c.park("deleted", 250, 1) // more than one call sees of a line
		c.park("archived", 2, 1)
		c.park("run", 2, 1)
		c.park("some", 30, 1)
		c.park("again", 1, 1)
		c.park("spoilt", 2, 1)
		end("deleted", 250, inspector.DeleteTask)
		end("archived", 2, inspector.ArchiveTask)
		end("run", 2, inspector.RunTask)
		end("some", 20, inspector.DeleteTask)
		end("again", 1, inspector.DeleteTask)
		client := asynq.NewClientFromRedisClient(c.rdb)
		if _, err := client.Enqueue(asynq.NewTask("x", nil), asynq.TaskID("again-000"), asynq.ProcessIn(time.Hour)); err != nil {
			c.t.Fatal(err)
		}
		if err := c.rdb.Set(ctx, TaskKey("default", "spoilt-000"), "not a task", 0).Err(); err != nil {
			c.t.Fatal(err)
		}
		clearAll()
		c.check("some are gone", 3+10+1, "whole", "some", "spoilt")

		end("whole", 3, inspector.DeleteTask)
		for i := 20; i < 30; i++ {
			if err := inspector.DeleteTask("default", fmt.Sprintf("some-%03d", i)); err != nil {
				c.t.Fatal(err)
			}
		}
		if err := c.rdb.Set(ctx, "asynq:{default}:jt:line:api\tspoilt", "not a line", 0).Err(); err != nil {
			c.t.Fatal(err)
		}
		clearAll()
		if left, err := c.rdb.ZRange(ctx, tenantsKey("default", "api"), 0, -1).Result(); fmt.Sprint(left) != "[spoilt]" || err != nil {
			c.t.Errorf("tenants %q, %v; want that whose line is no line", left, err)
		}
		if err := c.rdb.Del(ctx, "asynq:{default}:jt:line:api\tspoilt").Err(); err != nil {
			c.t.Fatal(err)
		}
		clearAll()
		for _, key := range []string{"tenants:api", "tasks", "lines"} {
			if n := c.rdb.Exists(ctx, "asynq:{default}:jt:"+key).Val(); n != 0 {
				c.t.Errorf("%q is left", key)
			}
		}
	})
}

// TestCharge: tags grow by permits and weight. The weight that an operator gave goes before that
// of the configuration. Tenants that are behind are forgotten. Tags that are lost begin again.
func TestCharge(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx := c.t.Context()
		tags := func(tenants ...string) Tags {
			c.t.Helper()
			tags, err := c.lines.Tags(ctx, nil, []string{"api"}, [][]string{tenants})
			if err != nil {
				c.t.Fatal(err)
			}
			return tags[0]
		}
		charge := func(v float64, tenants ...Charged) {
			c.t.Helper()
			if err := c.lines.Charge(ctx, []Charge{{Limiter: "api", V: v, Tenants: tenants}}); err != nil {
				c.t.Fatal(err)
			}
		}
		if v := tags("a").V; v >= 0 {
			c.t.Errorf("a virtual time of %v out of nothing", v)
		}
		charge(-1, Charged{Name: "a", Permits: 5, Weight: 1})
		if v := tags("a").V; v >= 0 {
			c.t.Errorf("what is owed begins a virtual time: %v", v)
		}
		charge(3, Charged{Name: "a", Permits: 10, Weight: 2}, Charged{Name: "b", Permits: 10, Weight: 1})
		if got := tags("a", "b", "c"); got.V != 3 || fmt.Sprint(got.Finish) != "[8 13 0]" {
			c.t.Errorf("tags %+v", got)
		}
		if err := c.lines.SetWeight(ctx, "api", "a", 10, 2); err != nil {
			c.t.Fatal(err)
		}
		charge(9, Charged{Name: "a", Permits: 60, Weight: 2}, Charged{Name: "b", Permits: -1, Weight: 1})
		if got := tags("a", "b"); got.V != 9 || fmt.Sprint(got.Finish) != "[10 12]" || fmt.Sprint(got.Weights) != "[10 0]" {
			c.t.Errorf("tags %+v", got)
		}
		charge(11)
		if n := c.rdb.ZCard(ctx, "{api}:finish").Val(); n != 2 { // b and the virtual time
			c.t.Errorf("%d tags are kept", n)
		}
		if err := c.lines.SetWeight(ctx, "api", "a", 0, 2); err != nil {
			c.t.Fatal(err)
		}
		if w, err := c.lines.Weights(ctx, "api"); len(w) != 0 || err != nil {
			c.t.Errorf("weights %v, %v", w, err)
		}
	})
}

// TestChargeInQueues: each queue has tags of its own. A charge also counts in other queues and in programs, up to a
// bound, if somebody has begun there. An empty queue begins again.
func TestChargeInQueues(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx := c.t.Context()
		for _, queue := range []string{"", "a", "b", "idle"} {
			if err := c.rdb.HSet(ctx, "{api}:queues", queue, "0 1 0 0 0 1").Err(); err != nil {
				c.t.Fatal(err)
			}
		}
		expect := func(queue, want string) {
			c.t.Helper()
			tags, err := c.lines.Tags(ctx, []string{queue}, []string{"api"}, [][]string{{"x", "y"}})
			if err != nil || fmt.Sprint(tags[0].V, tags[0].Finish) != want {
				c.t.Errorf("queue %q: %v %v, %v; want %s", queue, tags[0].V, tags[0].Finish, err, want)
			}
		}
		charge := func(of Charge) {
			c.t.Helper()
			of.Limiter = "api"
			if err := c.lines.Charge(ctx, []Charge{of}); err != nil {
				c.t.Fatal(err)
			}
		}
		charge(Charge{V: 0, Tenants: []Charged{{Name: "y", Permits: 1, Weight: 1, Ahead: 10}}}) // a program
		charge(Charge{Queue: "a", V: 5})
		charge(Charge{Queue: "b", V: 50, Tenants: []Charged{{Name: "x", Permits: 8, Weight: 2, Ahead: 20}}})
		expect("b", "50 [54 0]")
		expect("a", "5 [9 0]")
		expect("", "0 [4 1]")
		expect("idle", "-1 [0 0]")
		for range 5 {
			charge(Charge{Queue: "b", V: 50, Tenants: []Charged{{Name: "x", Permits: 8, Weight: 2, Ahead: 20}}})
		}
		expect("b", "50 [74 0]")
		expect("a", "5 [15 0]") // 20 permits ahead at most
		expect("", "0 [10 1]")
		charge(Charge{Queue: "b", V: -1, Tenants: []Charged{{Name: "x", Permits: -8, Weight: 2}}}) // given back
		expect("b", "50 [70 0]")
		expect("a", "5 [15 0]")
		charge(Charge{Queue: "b", V: 60, Empty: true, Tenants: []Charged{{Name: "x", Permits: 2, Weight: 2, Ahead: 20}}})
		charge(Charge{Queue: "b", V: -1, Tenants: []Charged{{Name: "x", Permits: -8, Weight: 2}}})
		expect("b", "-1 [0 0]")
		if err := c.lines.ForgetShares(ctx, "api"); err != nil {
			c.t.Fatal(err)
		}
		expect("a", "-1 [0 0]")
	})
}

// TestLineThatAnOldWorkerRemoved: a worker that does not know tenants takes their line for an
// empty one, and removes it from the lines. The line comes back. No line is made out of nothing.
func TestLineThatAnOldWorkerRemoved(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx := c.t.Context()
		claimed := func(mends int) []Claimed {
			c.t.Helper()
			due, err := c.lines.Due(ctx, []string{"default"}, 10, mends, nil)
			if err != nil {
				c.t.Fatal(err)
			}
			return due[0].Claimed
		}
		c.park("a", 3, 1)
		c.rdb.ZRem(ctx, "asynq:{default}:jt:lines", SharedBy("api"))
		if of := claimed(0); len(of) != 0 {
			c.t.Errorf("claimed %+v of no lines", of)
		}
		if of := claimed(5); len(of) != 1 || of[0] != (Claimed{Name: SharedBy("api"), Tasks: 3, Cost: 1}) {
			c.t.Errorf("claimed %+v, want the line of the tenants", of)
		}
		var seen []Seen
		for _, z := range c.rdb.ZRangeWithScores(ctx, "asynq:{default}:retry", 0, -1).Val() {
			seen = append(seen, Seen{z.Member.(string), "retry", z.Score})
		}
		if gone, err := c.lines.Delete(ctx, "default", seen); err != nil || fmt.Sprint(gone) != "[true true true]" {
			c.t.Errorf("deleted %v, %v", gone, err)
		}
		if n := c.rdb.HGet(ctx, "asynq:{default}:jt:tasks", "api").Val(); n != "0" {
			c.t.Errorf("%s tasks are left in line", n)
		}
		c.bring(Visit{Line: OfTenant("api", "a"), Weight: 1})
		if of := claimed(5); len(of) != 0 {
			c.t.Errorf("claimed %+v after all were deleted", of)
		}
	})
}

// TestSpoiltTags: if somebody has overwritten one limiter's tags, other limiters are not held up.
func TestSpoiltTags(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx := c.t.Context()
		if err := c.lines.Charge(ctx, []Charge{{Limiter: "api", V: 0, Tenants: []Charged{{Name: "a", Permits: 5, Weight: 1}}}}); err != nil {
			c.t.Fatal(err)
		}
		for _, key := range []string{ofLimiter("other", "finish"), ofLimiter("third", "weights")} {
			if err := c.rdb.Set(ctx, key, "x", 0).Err(); err != nil {
				c.t.Fatal(err)
			}
		}
		tags, err := c.lines.Tags(ctx, nil, []string{"other", "api", "third"}, [][]string{{"a"}, {"a"}, {"a"}})
		if err != nil || len(tags) != 3 || tags[0].V >= 0 || tags[1].Finish[0] != 5 || tags[2].V >= 0 {
			c.t.Errorf("%+v, %v", tags, err)
		}
	})
}

// TestLineWithWhatIsNoTask: if somebody has overwritten a task in line, the other tasks are
// called, and released.
func TestLineWithWhatIsNoTask(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx := c.t.Context()
		c.park("a", 6, 1)
		spoil := func(n int) {
			if err := c.rdb.Set(ctx, TaskKey("default", fmt.Sprintf("a-%03d", n)), "x", 0).Err(); err != nil {
				c.t.Fatal(err)
			}
		}
		spoil(1)
		if b := c.bring(Visit{Line: OfTenant("api", "a"), Permits: 3, Weight: 1}); b[0].Called != 3 {
			c.t.Errorf("called %+v, want 3", b)
		}
		spoil(4)
		if n, err := c.lines.Release(ctx, "default", OfTenant("api", "a")); n != 1 || err != nil {
			c.t.Errorf("released %d, %v, want 1", n, err)
		}
		if n := c.rdb.LLen(ctx, "asynq:{default}:pending").Val(); n != 4 {
			c.t.Errorf("%d in the queue, want 4", n)
		}
	})
}
