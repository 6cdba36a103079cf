package line

import (
	"slices"
	"time"
)

const (
	// farFor is how long calls must have been slow for Redis to count as far.
	farFor = 30 * time.Second
	// startFor is how long a process must make calls before that can be told: one that starts
	// is often kept from its processor, and all its calls are slow.
	startFor = time.Second
	// steadyFrom is how many calls it takes to tell how long the way to Redis is.
	steadyFrom = 3
)

// RoundTrips are the durations of the latest calls.
type RoundTrips struct {
	last [8]time.Duration
	n    int

	// The quickest of several calls that took about as long, and the number of the call that
	// showed it.
	alike time.Duration
	told  int

	// The least in the present stretch of farFor, and in the one before.
	leastNow, leastBefore time.Duration
	since                 Local
}

// known returns what a new line may take over from another.
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

// allAbove reports whether every call for a good while took longer than d. If so, the way to
// Redis is long, and it is not that this process, or Redis, has too much to do at present.
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

// steady reports whether the latest calls took longer than d, and several of them about as
// long as the quickest. A long way to Redis has that effect. A process that is kept from its
// processor rarely shows it.
func (r *RoundTrips) steady(d time.Duration) bool {
	least := r.least()
	return least > d && r.within(least) >= steadyFrom
}

// steadyAtStart is steady for a process that starts. It stays true after a quicker call if
// the difference is no larger than such calls have among themselves. Later in the life of a
// process, this would mistake a Redis that works off a backlog, and answers a little sooner
// each time, for one that is far.
func (r *RoundTrips) steadyAtStart(d time.Duration) bool {
	least := r.least()
	return least > d && r.alike > 0 && r.n-r.told < len(r.last) && least >= r.alike-r.alike/4
}

// median is how long a call takes at present.
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
