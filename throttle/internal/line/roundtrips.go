package line

import (
	"slices"
	"time"
)

const (
	// farFor is how long calls must have been slow for Redis to count as far.
	farFor = 30 * time.Second
	// startFor is how long a process makes calls before that can be told: one
	// that starts is often kept from its processor, and every call of it is slow.
	startFor = time.Second
	// steadyFrom is of how many calls the way to Redis can be told.
	steadyFrom = 3
)

// RoundTrips are the durations of the latest calls.
type RoundTrips struct {
	last [8]time.Duration
	n    int

	// The quickest of some that took about as long, and which call told that.
	alike time.Duration
	told  int

	// The least of the present and of the last farFor.
	leastNow, leastBefore time.Duration
	since                 Local
}

// known is what a line that begins may take over of another's.
func (r *RoundTrips) known() RoundTrips {
	return RoundTrips{last: r.last, n: r.n, alike: r.alike, told: r.told}
}

func (r *RoundTrips) add(d time.Duration, now Local) {
	r.last[r.n%len(r.last)] = d
	r.n++
	if least := r.least(); r.within(least) >= steadyFrom {
		r.alike, r.told = least, r.n
	}
	switch {
	case r.since == 0:
		r.leastNow, r.leastBefore, r.since = d, d, now
	case now.Sub(r.since) >= farFor:
		r.leastNow, r.leastBefore, r.since = d, r.leastNow, now
	default:
		r.leastNow = min(r.leastNow, d)
	}
}

// allAbove reports whether every call of a good while took longer than d: then
// it is the way to Redis that is long, and not that this process, or Redis, has
// too much to do at present.
func (r *RoundTrips) allAbove(d time.Duration) bool {
	return r.n >= len(r.last) && min(r.leastNow, r.leastBefore) > d
}

// within is how many of the latest calls took about as long as the quickest.
func (r *RoundTrips) within(least time.Duration) (n int) {
	for _, x := range r.last[:min(r.n, len(r.last))] {
		if x-least <= max(least/4, time.Millisecond) {
			n++
		}
	}
	return n
}

// steady reports whether the latest calls took longer than d, and several of
// them about as long as the quickest. A way that is long does that, and what
// keeps a process from its processor hardly.
func (r *RoundTrips) steady(d time.Duration) bool {
	least := r.least()
	return least > d && r.within(least) >= steadyFrom
}

// steadyAtStart is steady of a process that starts: a call that is quicker by no
// more than such calls differ does not end it. Later that would take a Redis that
// works off what waits, and answers a little sooner each time, for one that is far.
func (r *RoundTrips) steadyAtStart(d time.Duration) bool {
	least := r.least()
	return least > d && r.alike > 0 && r.n-r.told < len(r.last) && least >= r.alike-r.alike/4
}

// median is what a call takes at present.
func (r *RoundTrips) median() time.Duration {
	n := min(r.n, len(r.last))
	if n == 0 {
		return 0
	}
	sorted := r.last
	slices.Sort(sorted[:n])
	return sorted[n/2]
}

func (r *RoundTrips) least() time.Duration {
	least := r.last[0]
	for _, d := range r.last[:min(max(r.n, 1), len(r.last))] {
		least = min(least, d)
	}
	return least
}
