package asynqlimit_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// statsOf returns the counts of a pattern's jobs.
func statsOf(t *testing.T, limits *asynqlimit.Limits, pattern string) asynqlimit.JobStats {
	t.Helper()
	for _, j := range limits.Stats().Jobs {
		if j.Name == pattern {
			return j
		}
	}
	t.Fatalf("no counts of %q", pattern)
	return asynqlimit.JobStats{}
}

// TestOldestWaiting: the age of the oldest job in line grows while it waits, is never more than
// the time since it came, and is zero when no job waits. A keyed limit has one number for all
// values.
func TestOldestWaiting(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	var page *shown
	m := member{
		yaml: `
limits: { api: { rate: 1/1s }, tenant: { rate: 1/1s, key: payload.tenant } }
jobs: { x: { limits: [api], hold: 0 }, y: { limits: [tenant], hold: 0 } }
`,
		made: func(l *asynqlimit.Limits) { page = newShown(t, l) },
	}
	began := time.Now()
	for i := range 8 {
		if i < 4 {
			s.enqueue("x", fmt.Sprint("x", i))
		}
		s.enqueuePayload("y", fmt.Sprint("y", i), fmt.Appendf(nil, `{"tenant": "t%d"}`, i%2))
	}
	s.serve(m)
	for _, limit := range []string{"api", "tenant"} {
		age := func() float64 { return page.metric("jobthrottle_oldest_waiting_seconds", "limit", limit) }
		first := 0.0
		s.await(10*time.Second, func() (bool, string) {
			first = age()
			return first > 0, "nobody waits for " + limit
		})
		s.await(10*time.Second, func() (bool, string) {
			now := age()
			if longest := time.Since(began).Seconds(); now > longest {
				t.Errorf("%s: the oldest has waited for %vs, and came %vs ago", limit, now, longest)
			}
			return now > first || now == 0, fmt.Sprintf("%s: %v, then %v", limit, first, now)
		})
	}
	s.awaitStarts("x", 4, 20*time.Second)
	s.awaitStarts("y", 8, 20*time.Second)
	for _, limit := range []string{"api", "tenant"} {
		s.await(10*time.Second, func() (bool, string) {
			now := page.metric("jobthrottle_oldest_waiting_seconds", "limit", limit)
			return now == 0, fmt.Sprintf("%s: all have run, and the oldest has waited for %vs", limit, now)
		})
	}
}

// TestWholeWaits: whole waits begin with a job's first arrival, and go on while it is parked.
func TestWholeWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	var limits *asynqlimit.Limits
	began := time.Now()
	for i := range 4 {
		s.enqueue("x", fmt.Sprint("x", i))
	}
	s.enqueue("z", "z")
	mux := asynq.NewServeMux()
	m := member{
		yaml: "limits: { api: { rate: 1/1s } }\njobs: { x: { limits: [api], hold: 0 } }\n",
		mux:  mux,
		made: func(l *asynqlimit.Limits) { limits = l },
	}
	mux.HandleFunc("x", s.handler(m))
	mux.HandleFunc("z", s.handler(m))
	s.serve(m)
	longest := time.Duration(0)
	for _, start := range s.awaitStarts("x", 4, 20*time.Second) {
		longest += start.at.Sub(began)
	}
	got := statsOf(t, limits, "x")
	// All came at once, and one starts each second: they wait for 0, 1, 2 and 3 s, most of that
	// parked.
	if got.WholeWaits.Count != 4 || got.WholeWaits.Sum > longest || got.WholeWaits.Sum < 4*time.Second {
		t.Errorf("%d whole waits of %v, want 4 of 6s or so, and %v at most", got.WholeWaits.Count, got.WholeWaits.Sum, longest)
	}
	s.awaitStarts("z", 1, 10*time.Second)
	if other := statsOf(t, limits, asynqlimit.OtherJobs); other.WholeWaits.Count != 1 || other.Waits.Count != 0 {
		t.Errorf("a job without limits: %+v", other)
	}
}

// TestHandlerDurations: only handlers that ran are counted, without their waits for permits.
func TestHandlerDurations(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	var limits *asynqlimit.Limits
	var waited, ran atomic.Int64 // nanoseconds
	mux := asynq.NewServeMux()
	mux.HandleFunc("x", func(ctx context.Context, _ *asynq.Task) error {
		began := time.Now()
		if err := asynqlimit.Acquire(ctx); err != nil {
			return err
		}
		waited.Add(int64(time.Since(began)))
		ran.Add(1)
		return nil
	})
	mux.HandleFunc("y", func(context.Context, *asynq.Task) error {
		defer ran.Add(1)
		panic("no")
	})
	for i := range 4 { // one runs at once, one waits in its handler, two are put off there
		s.enqueue("x", fmt.Sprint("x", i))
	}
	s.enqueue("y", "y", asynq.MaxRetry(0))
	s.serve(member{
		yaml: `
limits: { api: { rate: 1/1s } }
jobs: { x: { limits: [api], acquire: handler, hold: 1500ms }, y: {} }
`,
		mux:  mux,
		made: func(l *asynqlimit.Limits) { limits = l },
	})
	s.await(20*time.Second, func() (bool, string) { return ran.Load() == 5, fmt.Sprint(ran.Load(), " have run, want 5") })
	s.await(10*time.Second, func() (bool, string) {
		x, y := statsOf(t, limits, "x"), statsOf(t, limits, "y")
		return x.Done == 4 && y.Failed == 1, fmt.Sprintf("%+v %+v", x, y)
	})
	x, y := statsOf(t, limits, "x"), statsOf(t, limits, "y")
	if x.PutOff == 0 {
		t.Error("none was put off: the test shows nothing")
	}
	if x.Handlers.Count != 4 || x.Handlers.Sum < 0 || x.Handlers.Sum >= time.Duration(waited.Load()) {
		t.Errorf("%d handlers took %v; they waited for permits for %v of it", x.Handlers.Count, x.Handlers.Sum, time.Duration(waited.Load()))
	}
	if x.WholeWaits.Count != 4 || y.Handlers.Count != 1 {
		t.Errorf("x %+v, y %+v", x.WholeWaits, y.Handlers)
	}
}
