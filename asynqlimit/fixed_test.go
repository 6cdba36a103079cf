package asynqlimit_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// blockAll puts all pending jobs of a queue in the line of a type that no worker had a handler for.
func (s *site) blockAll(queue, typ string) (n int) {
	s.t.Helper()
	lines := line.New(s.rdb)
	defer func() {
		if err := lines.EndSort(s.t.Context(), queue, "test"); err != nil {
			s.t.Error(err)
		}
	}()
	for {
		seen, _, _, err := lines.Peek(s.t.Context(), queue, "test", 500, 0, time.Second)
		if err != nil {
			s.t.Fatal(err)
		}
		if len(seen) == 0 {
			return n
		}
		park := make([]line.ToPark, len(seen))
		for i, t := range seen {
			park[i] = line.ToPark{ID: t.ID, How: line.Parking{Line: "!no_handler:" + typ, By: t.By, AtOnce: true}}
		}
		parked, err := lines.ParkPending(s.t.Context(), queue, park)
		if err != nil || slices.Contains(parked, false) {
			s.t.Fatal(parked, err)
		}
		n += len(parked)
	}
}

// TestFixedLine: what kept many jobs from running is fixed. They start in the order in which they came,
// and jobs of a queue that comes before theirs, in line for a limit, do not wait for them.
func TestFixedLine(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	goOn := s.stopLimit("api", "1000/1s")
	const blocked, high, many = 6000, 20, 900
	for i := range blocked {
		s.enqueue("x:fixed", fmt.Sprintf("fixed%04d", i), asynq.Queue("low"))
	}
	if n := s.blockAll("low", "x:fixed"); n != blocked {
		t.Fatalf("%d of %d jobs wait", n, blocked)
	}
	for i := range high {
		s.enqueue("y:limited", fmt.Sprintf("high%02d", i), asynq.Queue("high"))
	}
	s.serve(member{yaml: `
limits: { api: { rate: 1000/1s } }
jobs: { "y:limited": { limits: [api], hold: 0 } }
`, asynq: asynq.Config{Concurrency: 5, StrictPriority: true, Queues: map[string]int{"high": 6, "low": 1}}, handle: lasting(20 * time.Millisecond)})
	s.awaitWaiting("high", high)
	starts := s.awaitStarts("fixed", many, 30*time.Second) // 3.6 s if the slots are always in use
	t.Logf("%d started in %v", many, starts[many-1].at.Sub(starts[0].at))
	checkOrder(t, starts[1:]) // the first was tried, at random
	ids := make([]string, len(starts)-1)
	for i, st := range starts[1:] {
		ids[i] = st.id
	}
	if slices.Sort(ids); ids[len(ids)-1] > fmt.Sprintf("fixed%04d", many+100) {
		t.Errorf("%s was among the first %d", ids[len(ids)-1], many)
	}
	called := s.rdb.LRange(t.Context(), "asynq:{low}:pending", 0, -1).Val()
	if slices.Reverse(called); !slices.IsSorted(called) || len(called) > 50 {
		t.Errorf("%d jobs are on their way to 5 slots, in order: %v", len(called), slices.IsSorted(called))
	}
	goOn()
	s.awaitStarts("high", high, 2*time.Second)
}

// TestFixedLineBesideLong: where handlers are so long that all slots are in use, the jobs of a line that was
// fixed have their turns beside a backlog of others, as jobs of other lines have.
func TestFixedLineBesideLong(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	const blocked, fresh = 8, 8
	for i := range blocked {
		s.enqueue("x:fixed", fmt.Sprintf("fixed%d", i), asynq.Queue("high"))
	}
	if n := s.blockAll("high", "x:fixed"); n != blocked {
		t.Fatalf("%d of %d jobs wait", n, blocked)
	}
	for i := range 100 {
		s.enqueue("y:free", fmt.Sprintf("fresh%04d", i), asynq.Queue("low"))
	}
	s.serve(member{asynq: asynq.Config{Concurrency: 2, StrictPriority: true, Queues: map[string]int{"high": 6, "low": 1}}, handle: lasting(1500 * time.Millisecond), yaml: "jobs: {}"})
	s.awaitStarts("fixed", blocked, 15*time.Second) // 6 s if they have all slots, 75 s if they come last
	if n := len(s.seen("fresh")); n > fresh {
		t.Errorf("%d of the others started meanwhile", n)
	}
}

// TestFixedLinesOfQueues: lines of two queues go on at the same time, by the weights of their queues.
func TestFixedLinesOfQueues(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	for queue, blocked := range map[string]int{"bulk": 4000, "critical": 600} {
		for i := range blocked {
			s.enqueue("x:"+queue, fmt.Sprintf("%s%04d", queue, i), asynq.Queue(queue))
		}
		if n := s.blockAll(queue, "x:"+queue); n != blocked {
			t.Fatalf("%d of %d jobs wait", n, blocked)
		}
	}
	s.serve(member{asynq: asynq.Config{Concurrency: 5, Queues: map[string]int{"bulk": 1, "critical": 6}}, handle: lasting(10 * time.Millisecond), yaml: "jobs: {}"})
	s.awaitStarts("critical", 400, 6*time.Second) // 1 s by their weights, 9 s behind the others
}
