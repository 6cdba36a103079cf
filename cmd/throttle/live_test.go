package main

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// busiest is the largest number of starts in any stretch of time of that length.
func busiest(starts []time.Time, window time.Duration) int {
	starts = slices.SortedFunc(slices.Values(starts), time.Time.Compare)
	most, first := 0, 0
	for i := range starts {
		for starts[i].Sub(starts[first]) >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// TestSetWhileWorkersRun halves a limit and raises it again under four busy
// workers. Within a second all starts follow the new limit, and no second has
// more than the higher of the two, the change included. The long guard allows
// for handlers that a busy machine begins late.
func TestSetWhileWorkersRun(t *testing.T) {
	s := newSite(t)
	w := s.workers(`
limits: { api: { rate: 20/1s, guard: 200ms } }
pools: [ { name: default, concurrency: 10 } ]
jobs: { "x:limited": { limits: [api] } }
`)
	for i := range 300 {
		w.enqueue("x:limited", fmt.Sprint(i))
	}
	for range 4 {
		w.start(nil)
	}
	// set changes the rate, and returns what started until then.
	set := func(rate string) (before int, at time.Time) {
		t.Helper()
		s.done("set", "api", rate, "--pin")
		return len(w.seen()), time.Now()
	}
	after := func(starts []time.Time, at time.Time) []time.Time {
		return slices.DeleteFunc(starts, func(start time.Time) bool { return start.Before(at) })
	}
	w.awaitStarts(30)
	_, lowered := set("8/1s")
	settled := lowered.Add(time.Second)
	w.await("16 starts under the lower limit", func() bool { return len(after(w.seen(), settled)) >= 16 })
	low := after(w.seen(), settled)
	if got := busiest(low, time.Second); got > 8 {
		t.Errorf("%d starts in one second, more than one second after the limit was lowered to 8", got)
	}
	before, raised := set("30/1s")
	w.awaitStarts(before + 60)
	all := w.seen()
	until := slices.DeleteFunc(slices.Clone(all), func(start time.Time) bool { return start.After(raised) })
	if got := busiest(until, time.Second); got > 20 {
		t.Errorf("%d starts in one second under limits of 20 and 8", got)
	}
	if got := busiest(all, time.Second); got > 30 || got <= 20 {
		t.Errorf("%d starts in the busiest second, want more than 20 and at most 30 once the limit was raised", got)
	}
}

// TestPinned: workers that start leave a pinned limit alone, until it is unpinned.
func TestPinned(t *testing.T) {
	s := newSite(t)
	w := s.workers(`
limits: { api: { rate: 100/1h } }
jobs: { "x:limited": { limits: [api] } }
`)
	s.done("set", "api", "50/1h", "--pin", "--create")
	for i, step := range []struct {
		unpin bool
		want  string
	}{{false, "50/1h"}, {true, "100/1h"}} {
		if step.unpin {
			s.done("unpin", "api")
		}
		stop := w.start(nil)
		w.enqueue("x:limited", fmt.Sprint(i))
		w.awaitStarts(i + 1) // so it has applied its configuration
		stop()
		if l := decode[limiter](t, s.done("show", "api", "--json")); l.Rate != step.want || l.Pinned == step.unpin {
			t.Errorf("after a worker started, %s, pinned %v, want %s", l.Rate, l.Pinned, step.want)
		}
	}
}
