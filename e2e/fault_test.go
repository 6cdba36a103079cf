package e2e

import (
	"os"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// nightly says whether tests may take minutes.
func nightly() bool { return os.Getenv("JOBTHROTTLE_NIGHTLY") == "1" }

// TestKilledWorker: kill -9 half way. The other worker goes on, the limit
// holds, and asynq still knows the jobs that the dead one had in hand: those in
// its slots, and those that waited beside them for this limit, at most half of
// what may wait. It hands them out again within 3 minutes, which only the nightly
// run waits for, and counts a failure for those alone that may have run.
func TestKilledWorker(t *testing.T) {
	const jobs, slots = 400, 20
	const hand = slots + 20/2
	s := newSite(t, oneLimit)
	s.enqueue(jobs)
	victim, survivor := s.startWorker(), s.startWorker()
	s.awaitArrivals(jobs/2, time.Minute)
	victim.kill()
	killed := time.Now()
	s.awaitDone(jobs-hand, time.Minute)

	if !nightly() {
		testkit.Eventually(t, 30*time.Second, "nothing left but what the dead worker had", func() bool {
			q := s.queue()
			return q.Pending == 0 && q.Retry == 0 && q.Completed+q.Active == jobs
		})
	} else {
		s.awaitDone(jobs, 3*time.Minute-time.Since(killed))
		failed := s.queue().Failed
		t.Logf("all done %v after the kill, %d failures", time.Since(killed).Round(time.Second), failed)
		if failed > slots {
			t.Errorf("%d failures of a worker that ran %d jobs", failed, slots)
		}
		for i := range jobs {
			if s.api.Report().Jobs[jobName(i)] == 0 {
				t.Errorf("%s never arrived", jobName(i))
			}
		}
	}
	s.checkLimit()
	if q := s.queue(); q.Archived != 0 {
		t.Errorf("%d jobs archived", q.Archived)
	}
	s.stop(survivor)
}

// TestTerminatedUnderLoad: workers that are told to stop finish what runs, give
// back what waits, and the next worker does the rest.
func TestTerminatedUnderLoad(t *testing.T) {
	const jobs = 200
	const drain = 8 * time.Second // shutdown_timeout
	s := newSite(t, oneLimit)
	s.enqueue(jobs)
	first, second := s.startWorker(), s.startWorker()
	s.awaitArrivals(jobs/2, time.Minute)
	asked := time.Now()
	s.stop(first, second)
	took := time.Since(asked)
	t.Logf("both ended %v after SIGTERM", took.Round(time.Millisecond))
	if took > drain+2*time.Second {
		t.Errorf("they ended %v after SIGTERM, want at most %v", took, drain)
	}
	q := s.queue()
	if q.Active != 0 || q.Archived != 0 {
		t.Errorf("%d jobs active and %d archived after the drain, want none", q.Active, q.Archived)
	}
	if kept := q.Completed + q.Pending + q.Scheduled + q.Retry; kept != jobs {
		t.Errorf("asynq knows %d of %d jobs", kept, jobs)
	}
	if arrived := s.api.Report().Requests; arrived != q.Completed {
		t.Errorf("%d requests arrived, %d jobs are done", arrived, q.Completed)
	}

	third := s.startWorker()
	s.awaitDone(jobs, time.Minute)
	s.stop(third)
	s.checkOnceEach(jobs)
	s.checkLimit()
}
