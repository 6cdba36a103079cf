//go:build unix

package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/check"
)

// TestSection: the worst figures are shown, and figures for which a run was too short are left
// out.
func TestSection(t *testing.T) {
	const second = time.Second
	figures := func(fault string, busiest int, resumed, back time.Duration, during, after float64) check.Figures {
		return check.Figures{
			Phase: check.Phase{Fault: fault}, Busiest: check.Window{Arrivals: busiest, Limit: 100}, Twice: 1,
			Resumed: resumed, Back: back, During: during, After: after,
		}
	}
	m := measured{
		opts:  options{seeds: 3, length: time.Minute},
		seeds: []uint64{4, 6}, jobs: 200,
		results: []check.Result{
			{Busiest: check.Window{Arrivals: 100, Limit: 100}, Twice: 2, Idle: second, Phases: []check.Figures{
				figures("cut", 100, 0, second/2, 0.8, 0.98),
				figures("delay", 98, second, check.Never, 0.1, 0.4),
			}},
			{Busiest: check.Window{Arrivals: 102, Limit: 100, Above: 2}, Twice: 1, Idle: second, Lost: []string{"job-1"}, Phases: []check.Figures{
				figures("cut", 102, 3*second, check.Unknown, 0.5, check.Unknown),
			}},
		},
		crashes:  []check.Crash{{Unused: 12}, {Unused: 21, Later: 1}},
		failures: []error{errors.New("seed 5: redis-server did not come back")},
	}
	want := []string{
		"**A partial run.**",
		"**Failed, and left out: seed 5: redis-server did not come back**",
		"| runs | 2 of 1m0s, seeds 4 to 6 |",
		"| deaths of a worker | 2 |",
		"| windows above the limit | 0 | 2; the busiest held 102 of 100 | no |",
		"| jobs lost | 0 | 1 of 200 | no |",
		"| after a fault, work resumes | within 2 s | at most 3.00 s; 1 of 3 longer | no |",
		"| after a fault, 95 % is used again | within 5 s | at most never; 1 of 3 longer | no |",
		"| jobs done twice | told | 3 | - |",
		"permits that nobody uses | at most its 20 | at most 21, in 2 deaths | no |",
		"later than 1.024s after its death | 0 | at most 1 | no |",
		"| connections to Redis: cut, 4 times a second | 2 | 102 of 100 | 2 | 0.00 s (3.00 s) | 0.50 s (0.50 s) | 50 % (50 %) | 98 % (98 %) |",
		"| connections to Redis: requests take 2 s longer | 1 | 98 of 100 | 1 | 1.00 s (1.00 s) | never (never) | 10 % (10 %) | 40 % (40 %) |",
	}
	section := strings.Join(strings.Fields(m.section()), " ") // columns are aligned
	for _, line := range want {
		if !strings.Contains(section, line) {
			t.Errorf("the section lacks %q:\n%s", line, m.section())
		}
	}
	if err := m.verdict(); err == nil || !strings.Contains(err.Error(), "seed 6: 1 jobs lost: job-1") {
		t.Errorf("%v, want the seed of the lost job", err)
	}
}
