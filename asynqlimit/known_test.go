package asynqlimit

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/line"
)

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

// TestForgetsLinesThatAreGone: what was noted of the values of a key goes when nobody waits for them any more.
func TestForgetsLinesThatAreGone(t *testing.T) {
	cfg, err := config.Parse("config.yaml", []byte("limits: { crm: { in_flight: 1, key: payload.customer } }\njobs: { x: { limits: [crm] } }\n"))
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // it is not asked
	t.Cleanup(func() { rdb.Close() })
	l, err := New(rdb, cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	c := l.caller
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
