//go:build unix

package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/check"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/fault"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/record"
	"github.com/jobthrottle/jobthrottle/internal/operator"
)

// TestCauses: why a job that arrived at 10 s and was answered at 11 s may run again.
func TestCauses(t *testing.T) {
	const s = time.Second
	phase := func(name string, begin time.Duration) []check.Phase {
		return []check.Phase{{Fault: name, Begin: begin, End: begin + 3*s}}
	}
	for _, tt := range []struct {
		name      string
		status    int
		phases    []check.Phase
		later     time.Duration // its process sends another request; 0: it does not
		cancelled time.Duration
		want      string
	}{
		{"done", http.StatusOK, nil, 0, 0, ""},
		{"refused", http.StatusInternalServerError, nil, 0, 0, refused},
		{"given up", 0, nil, 0, 0, givenUp},
		{"cancelled", 0, nil, 0, 10 * s, "cancelled"},
		{"cancelled when its request was on its way", http.StatusOK, nil, 0, 10*s - s/20, "cancelled"},
		{"cancelled and answered", http.StatusOK, nil, 0, 11 * s, "cancelled"},
		{"cancelled long after", http.StatusOK, nil, 0, 14 * s, ""},
		{"cancelled before its result was written", http.StatusOK, phase("maxmemory", 9*s+s/2), 0, 14 * s, "cancelled"},
		{"cancelled before", http.StatusOK, nil, 0, 9 * s, ""},
		{"killed while it ran", 0, phase(fault.KillWorker, 10*s), 0, 0, died},
		{"killed when it was done", http.StatusOK, phase(fault.KillWorker, 12*s), 0, 0, died},
		{"killed later", http.StatusOK, phase(fault.KillWorker, 20*s), 0, 0, ""},
		{"another was killed", http.StatusOK, phase(fault.KillWorker, 10*s), 20 * s, 0, ""},
		{"a wrong clock", http.StatusOK, phase(fault.Clock, 9*s), 20 * s, 0, offClock},
		{"after a wrong clock", http.StatusOK, phase(fault.Clock, 0), 20 * s, 0, "early"},
		{"long after a wrong clock", http.StatusOK, phase(fault.Clock, -25*s), 20 * s, 0, ""},
		{"another fault", http.StatusOK, phase("cut", 9*s), 0, 0, ""},
	} {
		run := check.Run{Phases: tt.phases, Arrivals: []record.Arrival{{At: 10 * s, Ended: 11 * s, Worker: "w", Job: "a", Status: tt.status}}}
		if tt.later > 0 {
			run.Arrivals = append(run.Arrivals, record.Arrival{At: tt.later, Ended: tt.later, Worker: "w", Job: "b", Status: http.StatusOK})
		}
		var cancelled []operator.Cause
		if tt.cancelled > 0 {
			cancelled = []operator.Cause{{Job: "a", At: tt.cancelled, Why: "cancelled"}}
		}
		got := ""
		if c := causes(run, cancelled); len(c) > 0 {
			got = c[0].Why
			if c[0].Early {
				got = "early"
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
