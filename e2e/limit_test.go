package e2e

import (
	"cmp"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/strictapi"
)

// oneLimit is the main job: slots have nothing to do but to wait for the limit
// of the API, so that jobs do not park. What is checked is what arrives, and
// tests share their machine with Redis and the API: a second worker that starts
// was seen to keep requests from the API for 110 ms. They allow for more of that
// than the default guard of 10ms does; BenchmarkTwoWorkers has that.
var oneLimit = plan{guard: 200 * time.Millisecond, hold: "forever", waiting: 20}

// TestTwoWorkers: 400 lines of a file, two workers of 20 slots each, and an API
// that counts every request in a true sliding second. How long that takes is
// the benchmark's business.
func TestTwoWorkers(t *testing.T) {
	const jobs = 400
	slow := oneLimit
	slow.opening = 150 * time.Millisecond
	perWorker := oneLimit
	perWorker.perWorker = 10
	parking := oneLimit
	parking.hold, parking.waiting = "2s", 0 // the defaults
	tests := []struct {
		name string
		plan plan
	}{
		{"one limit", oneLimit},
		{"connections that take 150 ms to open", slow},
		{"a limit of each worker as well", perWorker},
		{"jobs that park", parking},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, tt.plan)
			r := runTwoWorkers(s, jobs)
			s.checkOnceEach(jobs)
			s.checkLimit()
			if len(r.Workers) != 2 {
				t.Errorf("requests of %d workers, want 2", len(r.Workers))
			}
			for id, share := range r.Workers {
				t.Logf("%s: %d requests, at most %d in a second", id, share.Requests, share.Peak)
				if most := cmp.Or(tt.plan.perWorker, apiLimit); share.Peak > most {
					t.Errorf("%s sent %d requests within a second, its limit is %d", id, share.Peak, most)
				}
			}
			if q := s.queue(); q.Completed != jobs || q.Archived != 0 {
				t.Errorf("asynq has %d of %d jobs done and %d archived", q.Completed, jobs, q.Archived)
			}
		})
	}
}

// runTwoWorkers enqueues jobs, lets two workers do them, and returns what the API saw.
func runTwoWorkers(s *site, jobs int) strictapi.Report {
	s.tb.Helper()
	s.enqueue(jobs)
	first, second := s.startWorker(), s.startWorker()
	s.awaitDone(jobs, 2*time.Minute)
	s.stop(first, second)
	r := s.api.Report()
	s.tb.Logf("%d jobs in %v from first to last arrival, ideal %v; at most %d in a second",
		jobs, r.Spread.Round(time.Millisecond), s.ideal(jobs), r.Peak)
	return r
}

// BenchmarkTwoWorkers reports the time of the main job against the least that
// the limit allows, and the busiest second, with the default guard.
func BenchmarkTwoWorkers(b *testing.B) {
	const jobs = 400
	blocking := plan{guard: 10 * time.Millisecond, hold: "forever", waiting: 20}
	slow := blocking
	slow.opening = 150 * time.Millisecond
	parking := plan{guard: 10 * time.Millisecond, hold: "2s", waiting: 10}
	for _, bm := range []struct {
		name string
		plan plan
	}{
		{"one limit", blocking},
		{"connections that take 150 ms to open", slow},
		{"jobs that park", parking},
	} {
		b.Run(bm.name, func(b *testing.B) {
			for b.Loop() {
				s := newSite(b, bm.plan)
				r := runTwoWorkers(s, jobs)
				b.ReportMetric(r.Spread.Seconds()/s.ideal(jobs).Seconds(), "time/ideal")
				b.ReportMetric(float64(r.Peak), "peak")
			}
		})
	}
}
