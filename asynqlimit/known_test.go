package asynqlimit

import (
	"testing"
	"time"

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
