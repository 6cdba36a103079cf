package e2e

import (
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/strictapi"
)

// oneLimit is the main job: slots have nothing to do but to wait for the limit
// of the API. Jobs do not park then, and no time is lost.
var oneLimit = plan{limits: "api: { rate: 40/1s }", names: "api", hold: "forever", waiting: 20}

// TestTwoWorkers: 400 lines of a file, two workers of 20 slots each, and an API
// that counts every request in a true sliding second. How long that takes is
// the benchmark's business.
func TestTwoWorkers(t *testing.T) {
	const jobs = 400
	slow := oneLimit
	slow.opening = 150 * time.Millisecond
	perWorker := oneLimit
	perWorker.limits += ", api-worker: { rate: 10/1s, type: per_client }"
	perWorker.names += ", api-worker"
	parking := oneLimit
	parking.hold, parking.waiting = "", 0
	tests := []struct {
		name      string
		plan      plan
		perWorker int // how many each may send in a second
	}{
		{"one limit", oneLimit, apiLimit},
		{"connections that take 150 ms to open", slow, apiLimit},
		{"a limit of each worker as well", perWorker, 10},
		{"jobs that park", parking, apiLimit},
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
				if share.Peak > tt.perWorker {
					t.Errorf("%s sent %d requests within a second, its limit is %d", id, share.Peak, tt.perWorker)
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
	s.awaitDone(jobs, 25*time.Second)
	s.stop(first, second)
	r := s.api.Report()
	s.tb.Logf("%d jobs in %v from first to last arrival, ideal %v; at most %d in a second",
		jobs, r.Spread.Round(time.Millisecond), ideal(jobs), r.Peak)
	return r
}

// BenchmarkTwoWorkers reports the time of the main job against the least that
// the limit allows, and the busiest second.
func BenchmarkTwoWorkers(b *testing.B) {
	const jobs = 400
	for b.Loop() {
		s := newSite(b, oneLimit)
		r := runTwoWorkers(s, jobs)
		b.ReportMetric(r.Spread.Seconds()/ideal(jobs).Seconds(), "time/ideal")
		b.ReportMetric(float64(r.Peak), "peak")
	}
}
