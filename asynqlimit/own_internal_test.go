package asynqlimit

import (
	"fmt"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle"
)

const ownYAML = "limits: {own: {rate: 5/1s, type: per_client}, own-of: {rate: 5/1s, type: per_client, key: payload.k}, all: {rate: 5/1s}}\njobs: {x: {limits: [own, own-of, all]}}\n"

// knownLines is what a pass reads of lines with those names.
func knownLines(names ...string) []line.Due {
	d := line.Due{Queue: "default", Known: map[string]int64{}}
	for _, name := range names {
		if d.Known[name] = 1; !line.IsBlocked(name) {
			d.All++
		}
	}
	return []line.Due{d}
}

// readOwn is what a pass notes that has read these lines.
func readOwn(c *caller, due []line.Due, named map[string][]string, now time.Time) {
	c.learn(due, now)
	c.learnOwn(due, named, now)
}

// TestOwnLines: a process visits lines of PerClient limiters by itself: at once when it first sees them, and as long as they are
// there; none if they are many, and none of a paused queue.
func TestOwnLines(t *testing.T) {
	c, now := callerOf(t, ownYAML), time.Now()
	due := func(at time.Time) string { return fmt.Sprint(c.ownDue(at, 10)) }
	read := knownLines("own", "all", "own-of:7", "!blocked")
	readOwn(c, read, nil, now)
	if got := due(now); got != "map[default:[own own-of:7]]" && got != "map[default:[own-of:7 own]]" {
		t.Errorf("when they are first seen: %s", got)
	}
	if next := c.ownNext(read, now, time.Second); next != busy {
		t.Errorf("the next pass is in %v, want %v", next, busy)
	}
	if read[0].Paused = true; c.ownNext(read, now, time.Second) != time.Second {
		t.Error("a pass comes for lines of a paused queue")
	}
	readOwn(c, []line.Due{{Queue: "default"}}, nil, now) // it could not be read
	if len(c.own) != 2 {
		t.Errorf("%v after a pass that could not read the lines", c.own)
	}
	cut := knownLines("all")
	cut[0].All = 2000
	if readOwn(c, cut, nil, now); len(c.own) != 2 {
		t.Errorf("%v after a pass that could not read all lines", c.own)
	}
	if readOwn(c, cut, map[string][]string{"default": {"own"}}, now); len(c.own) != 1 {
		t.Errorf("%v after a pass that named one, and did not find it", c.own)
	}
	if readOwn(c, knownLines("all"), nil, now); len(c.own) != 0 {
		t.Errorf("%v when the lines are gone", c.own)
	}
	many := make([]string, ownMost+1)
	for i := range many {
		many[i] = fmt.Sprint("own-of:", i)
	}
	if readOwn(c, knownLines(many...), nil, now); len(c.own) != 0 {
		t.Errorf("it visits each of %d lines by itself", len(many))
	}
}

// TestOwnVisited: after a visit the next one comes when this process's permits are due. If the limiter could not be read, it is
// tried again soon; if it turns out to be everybody's, it is left to the visits of all.
func TestOwnVisited(t *testing.T) {
	for name, tt := range map[string]struct {
		s    limiterStanding
		want time.Duration
	}{
		"permits are due":    {limiterStanding{client: "me"}, soonest},
		"in half a second":   {limiterStanding{client: "me", wait: 500 * time.Millisecond}, 300*time.Millisecond + soonest},
		"much later":         {limiterStanding{client: "me", wait: time.Hour}, farthest},
		"it was not read":    {limiterStanding{wait: longest, unknown: true}, farthest},
		"it is everybody's":  {limiterStanding{wait: 0}, paceLasts},
		"paused for an hour": {limiterStanding{client: "me", wait: time.Hour}, farthest},
	} {
		c, now := callerOf(t, ownYAML), time.Now()
		readOwn(c, knownLines("own"), nil, now)
		if !c.ownVisited(&visit{name: "own"}, tt.s, now) {
			t.Errorf("%s: it does not visit the line by itself", name)
		}
		if got := c.own[probeKey{"default", "own"}].Sub(now); got != tt.want {
			t.Errorf("%s: the next visit is in %v, want %v", name, got, tt.want)
		}
		if c.ownVisited(&visit{name: "all"}, tt.s, now) || len(c.own) != 1 {
			t.Errorf("%s: it visits a line by itself that is not its own: %v", name, c.own)
		}
	}
}

// TestOwnAsRedisSays: whose permits they are is what Redis said last, not the configuration.
func TestOwnAsRedisSays(t *testing.T) {
	c, now := callerOf(t, ownYAML), time.Now()
	c.paces["own"] = pace{rate: throttle.Rate{Permits: 5, Interval: time.Second}, read: now}
	c.paces["all"] = pace{rate: throttle.Rate{Permits: 5, Interval: time.Second, Type: throttle.PerClient}, read: now}
	if readOwn(c, knownLines("own", "all"), nil, now); len(c.own) != 1 || c.own[probeKey{"default", "all"}].IsZero() {
		t.Errorf("%v, want the line of all", c.own)
	}
}

// TestOwnOfAnOperator: an operator gives each process permits of its own of a limit that the configuration has as everybody's.
func TestOwnOfAnOperator(t *testing.T) {
	c, now := callerOf(t, "limits: {all: {rate: 5/1s}}\njobs: {x: {limits: [all]}}\n"), time.Now()
	if readOwn(c, knownLines("all"), nil, now); len(c.own) != 0 {
		t.Errorf("%v before", c.own)
	}
	c.paces["all"] = pace{rate: throttle.Rate{Permits: 5, Interval: time.Second, Type: throttle.PerClient}, read: now}
	if readOwn(c, knownLines("all", line.SharedBy("all")), nil, now); len(c.own) != 1 || c.own[probeKey{"default", "all"}].IsZero() {
		t.Errorf("%v, want the line of all, and not that which tenants share", c.own)
	}
}
