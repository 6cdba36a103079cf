package asynqlimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestCancelledWhileItWaits: asynq cancels jobs that wait for their permits, as an operator asked it to.
// Nothing has failed: the jobs go on waiting, and the program's ErrorHandler does not hear of it.
func TestCancelledWhileItWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	const jobs = 4
	for i := range jobs {
		s.enqueue("x:limited", fmt.Sprint("x", i), asynq.MaxRetry(0), asynq.Retention(time.Hour))
	}
	s.serve(member{yaml: `
limits: { api: { rate: 1/2s } }
jobs: { "x:limited": { limits: [api], hold: 1m } }
`})
	s.awaitStarts("x", 1, 10*time.Second)
	s.await(10*time.Second, func() (bool, string) { // the others wait in the process
		q := s.queue("default")
		return q.Active == jobs-1, fmt.Sprintf("%+v", q)
	})
	for i := range jobs {
		if err := s.inspector.CancelProcessing(fmt.Sprint("x", i)); err != nil {
			t.Fatal(err)
		}
	}
	s.await(10*time.Second, func() (bool, string) { // they have parked
		q := s.queue("default")
		return q.Retry > 0 && q.Failed == 0, fmt.Sprintf("%+v", q)
	})
	s.awaitDone("default", 20*time.Second)
	if n := len(s.seen("x")); n != jobs {
		t.Errorf("%d jobs started %d times", jobs, n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.failures) > 0 {
		t.Errorf("the ErrorHandler saw %v", s.failures)
	}
}

// TestRedisAwayForLongerThanALease: Redis stands still until the leases of jobs that wait in a process
// have lapsed. When it is back, the jobs go on at once, and not when asynq's recoverer comes a minute later.
// Nothing has failed.
func TestRedisAwayForLongerThanALease(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	s := newSite(t, server.Addr)
	const at, away = 6, 36 * time.Second
	for i := range 2 * at {
		s.enqueue("x:limited", fmt.Sprintf("x%02d", i), asynq.MaxRetry(0), asynq.Retention(time.Hour))
	}
	s.serve(member{yaml: fmt.Sprintf(`
limits: { api: { rate: %d/%v } }
jobs: { "x:limited": { limits: [api], hold: 2m } }
`, at, away+5*time.Second), asynq: asynq.Config{Concurrency: 2 * at}})
	s.awaitStarts("x", at, 10*time.Second)
	s.await(10*time.Second, func() (bool, string) {
		q := s.queue("default")
		return q.Active == at, fmt.Sprintf("%+v", q)
	})
	server.Freeze()
	time.Sleep(away)
	server.Thaw()
	s.awaitStarts("x", 2*at, 15*time.Second)
	s.awaitDone("default", 10*time.Second)
	if n := len(s.seen("x")); n != 2*at {
		t.Errorf("%d jobs started %d times", 2*at, n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.failures) > 0 {
		t.Errorf("the ErrorHandler saw %v", s.failures)
	}
}
