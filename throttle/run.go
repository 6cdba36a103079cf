package throttle

import (
	"slices"
	"time"
)

const (
	// forever is a longest wait that no turn exceeds.
	forever = maxInterval
	// leastHorizon is how far ahead places are reserved at the least.
	leastHorizon = time.Second
	// maxDoublings bounds how much longer the lead of a waiter becomes whose
	// places come too late again and again. It is what keeps a fleet from asking
	// a busy Redis for more, the longer its answers take.
	maxDoublings = 10
)

// run is adjacent waiters that ask for the same.
type run struct {
	waiters []*waiter
	longest time.Duration // what they would wait
	reach   time.Duration // how far ahead a place may be reserved for them
	near    time.Duration // up to where that is nobody else's concern
	lead    time.Duration // how far ahead their turn must be, to be still ahead when the reply comes
	stock   int64         // or, without waiters, how much stock is asked for
}

// runOf is a run of one waiter: what it asks for.
func (q *queue) runOf(w *waiter, now time.Time) run {
	r := run{waiters: []*waiter{w}, longest: forever}
	if !w.until.IsZero() {
		r.longest = max(w.until.Sub(now), 0)
		if r.longest > time.Millisecond {
			r.longest = r.longest.Truncate(time.Millisecond) // so that those who came together ask together
		}
	}
	horizon := q.horizon(w.ns)
	if w.stale > 0 {
		twice := 2 * q.roundTrips.median()
		r.lead = min(twice<<min(w.stale-1, maxDoublings), max(twice, r.longest), horizon*3/4)
		r.longest = max(r.longest, r.lead)
	}
	r.reach, r.near = min(horizon, r.longest), horizon/2
	return r
}

// like reports whether two runs ask for the same.
func (r run) like(s run) bool {
	return r.longest == s.longest && r.reach == s.reach && r.lead == s.lead && slices.Equal(r.waiters[0].ns, s.waiters[0].ns)
}

// horizon is how far ahead places may be reserved: far enough that a process
// need not ask often, near enough that a crash wastes little and newcomers get
// their turn. The term with n keeps a horizon full of small requests from
// starving a big one.
func (q *queue) horizon(ns []int64) time.Duration {
	h := forever
	for i, s := range q.config {
		if s.rate == 0 {
			return leastHorizon // not known yet
		}
		h = min(h, max(s.interval, leastHorizon)+perPermit(s, 2*ns[i]))
	}
	return h
}

// perPermit is the time in which a limit gives n permits.
func perPermit(s settings, n int64) time.Duration {
	return time.Duration(float64(n) * float64(s.span()) / float64(s.rate))
}
