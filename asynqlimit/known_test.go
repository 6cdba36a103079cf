package asynqlimit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// callerOf returns the caller of a configuration whose Redis is not asked.
func callerOf(t *testing.T, yaml string) *caller {
	t.Helper()
	cfg, err := config.Parse("config.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { rdb.Close() })
	l, err := New(rdb, cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.caller
}

// TestLinesBeyondAPass: a pass reads some of a queue's lines. It does not forget lines for which
// jobs have asked, or in which they parked. Jobs have to ask for the others.
func TestLinesBeyondAPass(t *testing.T) {
	began := time.Now()
	before := &lineup{lines: map[string]lined{
		"parked before":   {tasks: 3, cost: 5, at: began.Add(-askedLasts / 2)},
		"parked since":    {tasks: 1, cost: 5, at: began.Add(time.Millisecond)},
		"asked long ago":  {tasks: 2, at: began.Add(-2 * askedLasts)},
		"read by a pass":  {tasks: 7},
		"told of by both": {tasks: 4, cost: 5},
	}}
	told := map[string]int64{"told of by both": 9, "!no_handler:x": -1}
	for name, tt := range map[string]struct {
		all  int64
		more bool
		want map[string]int64
	}{
		"all":  {1, false, map[string]int64{"parked since": 1, "told of by both": 9, "!no_handler:x": -1}},
		"some": {5000, true, map[string]int64{"parked before": 3, "parked since": 1, "told of by both": 9, "!no_handler:x": -1}},
	} {
		t.Run(name, func(t *testing.T) {
			u := learned(before, line.Due{Queue: "default", All: tt.all, Known: told}, began)
			if u.more != tt.more || len(u.lines) != len(tt.want) {
				t.Errorf("knows of %v, more: %v; want %v, %v", u.lines, u.more, tt.want, tt.more)
			}
			for name, tasks := range tt.want {
				if u.lines[name].tasks != tasks {
					t.Errorf("%d tasks in %q, want %d", u.lines[name].tasks, name, tasks)
				}
			}
			if cost := u.lines["told of by both"].cost; cost != 5 {
				t.Errorf("a task costs %d, want 5 as before", cost)
			}
		})
	}
}

// TestLinesThatCountAsNone: who comes while some wait takes a permit only if there are permits for those who wait, too, and they
// have them soon. When the last permits of an interval are called for, the next come when it is over, however short the line.
func TestLinesThatCountAsNone(t *testing.T) {
	const queue, limit = "default", "api"
	ns := needs{limiters: []string{limit}, lines: []string{limit}, costs: []int64{1}, draws: make([]plan.Draw, 1)}
	now := time.Now()
	read := func(available int64, free, ago time.Duration) pace {
		return paceOf(operate.FleetUsage{Usage: throttle.Usage{Rate: throttle.Rate{Permits: 50, Interval: time.Second}, Available: available, NextFree: free}}, "", now.Add(-ago))
	}
	for name, tt := range map[string]struct {
		pace  pace
		since func(c *caller)
		ahead bool
	}{
		"no line":                  {read(0, time.Second, 0), func(c *caller) { c.note(queue, limit, 0) }, false},
		"permits for all":          {read(11, 0, 0), func(*caller) {}, false},
		"permits for those before": {read(10, 0, 0), func(*caller) {}, true},
		"soon":                     {paceOf(operate.FleetUsage{Usage: throttle.Usage{Rate: throttle.Rate{Permits: 50, Interval: time.Second}, Soon: 20, NextFree: 100 * time.Millisecond}}, "", now), func(*caller) {}, false},
		"a long line":              {read(50, 0, 0), func(c *caller) { c.note(queue, limit, 40) }, true},
		"the next permit is far":   {read(0, time.Second, 0), func(*caller) {}, true},
		"read a while ago":         {read(50, 0, 2*lead), func(*caller) {}, true},
		"tasks are called":         {read(20, 0, 0), func(c *caller) { c.promised(limit, 10) }, true},
		"all of them":              {read(20, 0, 0), func(c *caller) { c.promised(limit, 10); c.note(queue, limit, 0) }, false},
		"one has parked":           {read(11, 0, 0), func(c *caller) { c.parked(queue, line.Parking{Line: limit}) }, true},
		"there is no such limit":   {pace{read: now}, func(*caller) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := callerOf(t, "limits: { api: { rate: 50/1s } }\njobs: { x: { limits: [api] } }\n")
			p, later := tt.pace, time.Since(now)
			p.read, p.free = p.read.Add(later), p.free.Add(later)
			c.paces[limit] = p
			c.lineup(queue).more = false
			c.note(queue, limit, 10)
			tt.since(c)
			if got, err := c.ahead(t.Context(), queue, ns); err != nil || got != "" != tt.ahead {
				t.Errorf("%q is ahead (%v), want %v", got, err, tt.ahead)
			}
		})
	}
}

// TestLongestLineIsAhead: a task of several limits with lines waits for the one that lets it wait longest.
func TestLongestLineIsAhead(t *testing.T) {
	const queue = "default"
	hourly := throttle.Rate{Permits: 5, Interval: time.Hour}
	fast := throttle.Rate{Permits: 100, Interval: time.Second}
	ns := needs{
		limiters: []string{"api", "plan:acme"}, lines: []string{"api", "plan:acme"}, costs: []int64{1, 1},
		draws: []plan.Draw{{Limiter: "api", Rate: fast}, {Limiter: "plan:acme", Rate: hourly}},
	}
	for name, tt := range map[string]struct {
		api, acme int64 // tasks in line; -1: some
		want      string
	}{
		"none":                       {0, 0, ""},
		"one":                        {200, 0, "api"},
		"the other":                  {0, 1, "plan:acme"},
		"both":                       {200, 1, "plan:acme"},
		"one is not known":           {-1, 1, "plan:acme"},
		"the other is not known":     {200, -1, "plan:acme"},
		"neither is":                 {-1, -1, "plan:acme"},
		"one is very long":           {1_000_000, 1, "api"},
		"one is there, and is short": {1, 1, "plan:acme"},
	} {
		t.Run(name, func(t *testing.T) {
			c := callerOf(t, "limits: { api: { rate: 100/1s }, plan: { rate: 5/1h, key: payload.account } }\njobs: { x: { limits: [api, plan] } }\n")
			c.paces["api"] = paceOf(operate.FleetUsage{Usage: throttle.Usage{Rate: fast, NextFree: 10 * time.Millisecond}}, "", time.Now())
			c.lineup(queue).more = false
			for name, tasks := range map[string]int64{"api": tt.api, "plan:acme": tt.acme} {
				if tasks != 0 {
					c.lineup(queue).lines[name] = lined{tasks: tasks}
				}
			}
			if got, err := c.ahead(t.Context(), queue, ns); err != nil || got != tt.want {
				t.Errorf("%q is ahead (%v), want %q", got, err, tt.want)
			}
		})
	}
}

// TestForgetsLinesThatAreGone: what was noted of the values of a key goes when nobody waits for them any more.
func TestForgetsLinesThatAreGone(t *testing.T) {
	c := callerOf(t, "limits: { crm: { in_flight: 1, key: payload.customer } }\njobs: { x: { limits: [crm] } }\n")
	for i := range 1000 {
		key := probeKey{"default", line.InFlight + "crm:" + fmt.Sprint(i)}
		c.expect(key, 5, line.Brought{Called: 1, Left: 3})
	}
	if len(c.onWay) != 1000 || len(c.spare) != 1000 || len(c.calledAt) != 1000 {
		t.Fatalf("%d, %d and %d are noted", len(c.onWay), len(c.spare), len(c.calledAt))
	}
	c.forget(time.Now().Add(time.Minute))
	if len(c.onWay)+len(c.spare)+len(c.calledAt) != 0 {
		t.Errorf("%d, %d and %d are left a minute later", len(c.onWay), len(c.spare), len(c.calledAt))
	}
}

// TestFreedSlotsFirst: among many limits in flight with tasks in line, those of which a slot has just become free are read first.
func TestFreedSlotsFirst(t *testing.T) {
	c := callerOf(t, "limits: { crm: { in_flight: 2, key: payload.customer } }\njobs: { x: { limits: [crm] } }\n")
	c.queues = []string{"default"}
	known := map[string]int64{}
	for i := range 1000 {
		name := line.InFlight + "crm:" + fmt.Sprint(i)
		known[name] = 3
		c.note("default", name, 3)
	}
	for _, freed := range []string{"crm:17", "crm:500", "crm:999"} {
		c.ended(line.InFlight + freed)
	}
	lined := map[string]bool{}
	for name := range known {
		limiter, _ := line.SlotLimit(name)
		lined[limiter] = true
	}
	names := c.toRead(lined)
	if slices.Sort(names[:3]); !slices.Equal(names[:3], []string{"crm:17", "crm:500", "crm:999"}) || len(names) != maxSlotLines {
		t.Errorf("%d limits are read, first %v", len(names), names[:3])
	}
	if len(c.vacated)+len(c.first) > 0 {
		t.Errorf("%d and %d are noted after a pass", len(c.vacated), len(c.first))
	}
}
