package asynqlimit_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// TestDrainWhileThousandsAreCalled: two servers are told to stop while thousands of their jobs are called or run. They end in
// time. No job is lost or left with nobody, and the others start under the next server, in order.
func TestDrainWhileThousandsAreCalled(t *testing.T) {
	jobs := 10_000
	if nightly() {
		jobs = 60_000
	}
	const underWay, shutdown = 2000, 3 * time.Second
	s := newSite(t, redistest.Start(t))
	goOn := s.stopLimit("api", "2000/1s")
	for i := range jobs {
		s.enqueue("x:limited", fmt.Sprintf("job%03d", i), asynq.MaxRetry(0))
	}
	end := make(chan struct{}) // closed when handlers end
	ends := sync.OnceFunc(func() { close(end) })
	defer ends()
	m := member{yaml: `
limits: { api: { rate: 2000/1s, guard: 200ms } }
jobs: { "x:limited": { limits: [api] } }
`, asynq: asynq.Config{Concurrency: 800, ShutdownTimeout: shutdown}, handle: func(context.Context, *asynq.Task) error {
		<-end
		return nil
	}}
	stops := []func(){s.serve(m), s.serve(m)}
	began := time.Now()
	s.awaitWaiting("default", jobs)
	t.Logf("%d jobs parked in %v", jobs, time.Since(began))
	goOn()
	var called int64
	testkit.Eventually(t, 20*time.Second, "thousands are called", func() bool {
		called = s.rdb.ZCard(t.Context(), "asynq:{default}:jt:called").Val() + int64(s.queue("default").Active)
		return called >= underWay
	}, func() string { return fmt.Sprintf("%d are called or run; %+v", called, s.queue("default")) })
	time.AfterFunc(500*time.Millisecond, ends)
	began = time.Now()
	var all sync.WaitGroup
	for _, stop := range stops {
		all.Go(stop)
	}
	all.Wait()
	took, started := time.Since(began), len(s.seen("job"))
	q := s.queue("default")
	t.Logf("both ended %v after they were told to, with %d called; %d jobs had started", took, called, started)
	if took > shutdown+time.Second {
		t.Errorf("they ended after %v, want %v at most", took, shutdown)
	}
	if q.Active != 0 || q.Size+started != jobs {
		t.Errorf("%d are active with nobody; %d started and %d are there, of %d", q.Active, started, q.Size, jobs)
	}
	if started == jobs {
		t.Error("all jobs had started before the servers ended")
	}

	began = time.Now()
	s.serve(m)
	ideal := time.Duration(jobs-started) * time.Second / 2000
	testkit.Eventually(t, 5*time.Second+3*ideal, "all have started", func() bool { return len(s.seen("job")) >= jobs },
		func() string { return fmt.Sprintf("%d of %d; %+v", len(s.seen("job")), jobs, s.queue("default")) })
	t.Logf("the other %d started within %v; ideally %v", jobs-started, time.Since(began), ideal)
	s.inOrder(jobs, time.Second)
	s.awaitDone("default", 10*time.Second)
}
