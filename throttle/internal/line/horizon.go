package line

import (
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

const (
	// forever is a wait that no other exceeds: the longest interval.
	forever = 365 * 24 * time.Hour
	// leastHorizon is how far ahead permits can be reserved at least.
	leastHorizon = time.Second
	// maxDoublings bounds how often the lead of a waiter doubles whose grants come too late
	// again and again. The longer lead keeps a fleet from asking a busy Redis for more, the
	// longer its answers take.
	maxDoublings = 10
)

// runOf returns a run of one waiter: what it asks for.
func (l *Line) runOf(w *Waiter, now Local) script.Run {
	r := script.Run{Longest: forever, Count: 1, Ns: w.ns}
	if w.until != 0 {
		r.Longest = max(w.until.Sub(now), 0)
		if r.Longest > time.Millisecond {
			// Rounded, so that those who came together ask together.
			r.Longest = r.Longest.Truncate(time.Millisecond)
		}
	}
	horizon := l.horizon(w.ns)
	if w.stale > 0 {
		twice := 2 * l.roundTrips.median()
		r.Lead = min(twice<<min(w.stale-1, maxDoublings), max(twice, r.Longest), horizon*3/4)
		r.Longest = max(r.Longest, r.Lead)
	}
	r.Reach, r.Near = min(horizon, r.Longest), horizon/2
	return r
}

// horizon is how far ahead permits may be reserved: far enough that a process need not ask
// often, near enough that a crash wastes little and newcomers are served. The term with n
// keeps a horizon full of small requests from starving a big one.
func (l *Line) horizon(ns []int64) time.Duration {
	h := forever
	for i, s := range l.config {
		if s.Rate == 0 {
			return leastHorizon // not known yet
		}
		h = min(h, max(s.Interval, leastHorizon)+s.PerPermit(2*ns[i]))
	}
	return h
}
