package line

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestDueAlso: a process gets lines that it names although they are not due, and another process has claimed them; that changes
// nothing for others. Lines that are not there it does not get, and none of a paused queue.
func TestDueAlso(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx := c.t.Context()
		c.parkJobs(5)
		claims := func(also ...string) []Claimed {
			c.t.Helper()
			due, err := c.lines.Due(ctx, []string{"default"}, 10, 0, map[string][]string{"default": also})
			if err != nil {
				c.t.Fatal(err)
			}
			return due[0].Claimed
		}
		want := Claimed{Name: "api", Tasks: 5, Cost: 1}
		if got := claims("api", "none"); len(got) != 1 || got[0] != want {
			c.t.Errorf("a line that is due and named: %+v, want %+v once", got, want)
		}
		if got := claims(); len(got) != 0 {
			c.t.Errorf("a line that was claimed: %+v", got)
		}
		want.Also = true
		claimed := c.rdb.ZScore(ctx, linesKey("default", ""), "api").Val()
		if got := claims("none", "api"); len(got) != 1 || got[0] != want {
			c.t.Errorf("a line that was claimed and is named: %+v, want %+v", got, want)
		}
		if _, err := c.lines.Bring(ctx, []string{"default"}, [][]Visit{{{Line: "api", Permits: 1, Also: true}}}); err != nil {
			c.t.Fatal(err)
		}
		if at := c.rdb.ZScore(ctx, linesKey("default", ""), "api").Val(); at != claimed {
			c.t.Errorf("its next visit moves from %.0f to %.0f", claimed, at)
		}
		c.rdb.Set(ctx, pausedKey("default"), 1, 0)
		if got := claims("api"); len(got) != 0 {
			c.t.Errorf("lines of a paused queue: %+v", got)
		}
	})
}

// TestVisitAgain: a line whose tasks came too recently to be called is visited again soon, although the visit that found permits
// for them named a later time. A line whose permits are used up is visited when it said.
func TestVisitAgain(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx := c.t.Context()
		bring := func(name string) (called int64, next time.Duration) {
			c.t.Helper()
			got, err := c.lines.Bring(ctx, []string{"default"}, [][]Visit{{{Line: name, Permits: 3, Next: time.Minute}}})
			if err != nil {
				c.t.Fatal(err)
			}
			at, err := c.rdb.ZScore(ctx, linesKey("default", ""), name).Result()
			now, terr := c.rdb.Time(ctx).Result()
			if err != nil || terr != nil {
				c.t.Fatal(err, terr)
			}
			return got[0][0].Called, time.UnixMilli(int64(at)).Sub(now)
		}
		c.parkJobs(5)
		if called, next := bring("api"); called != 3 || next < 50*time.Second {
			c.t.Errorf("%d of 5 tasks called, next visit in %v; want 3, and a minute", called, next)
		}
		c.enqueue("late")
		seen, _, _, err := c.lines.Peek(ctx, "default", "p", 10, 0, time.Second)
		if err != nil || len(seen) != 4 {
			c.t.Fatal(seen, err)
		}
		parked, err := c.lines.ParkPending(ctx, "default", []ToPark{{ID: "late", How: Parking{Line: "other", By: seen[3].By}}})
		if err != nil || !parked[0] {
			c.t.Fatal(parked, err)
		}
		if called, next := bring("other"); called != 0 || next > VisitAgain {
			c.t.Errorf("%d tasks called that came just now, next visit in %v; want none, and %v", called, next, VisitAgain)
		}
	})
}

// TestDueOfManyBlocked: more lines of tasks that cannot run, or wait for slots, are there than one pass returns. Each of them is
// returned after some passes, and those that were visited longest ago by each pass.
func TestDueOfManyBlocked(t *testing.T) {
	onBothServers(t, func(c crowd) {
		ctx := c.t.Context()
		for _, lines := range []int{1, maxKnown, maxKnown + 1, maxKnown + 200} {
			var all []redis.Z
			for i := range lines {
				all = append(all, redis.Z{Score: float64(i), Member: fmt.Sprintf("%s%04d", InFlight, i)})
			}
			c.rdb.Del(ctx, blockedKey("default"))
			c.rdb.ZAdd(ctx, blockedKey("default"), all...)
			returned := map[string]bool{}
			for range 40 {
				due, err := c.lines.Due(ctx, []string{"default"}, 10, 0, nil)
				if err != nil {
					c.t.Fatal(err)
				}
				if n := len(due[0].Known); n != min(lines, maxKnown) {
					c.t.Fatalf("%d of %d lines are returned", n, lines)
				}
				for _, z := range all[:min(lines, maxKnown/2)] {
					if _, known := due[0].Known[z.Member.(string)]; !known {
						c.t.Fatalf("%v of %d is not returned", z.Member, lines)
					}
				}
				for name := range due[0].Known {
					returned[name] = true
				}
			}
			if len(returned) != lines {
				c.t.Errorf("%d of %d lines were returned by one pass or another", len(returned), lines)
			}
		}
	})
}
