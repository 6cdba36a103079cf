package throttle

import "time"

const (
	// farFrom is how long the quickest call takes where Redis is far: what this
	// queue knows of the configuration is then old when it gets there.
	farFrom = freshFor / 4
	// farSuspected is how long a first call takes if Redis may be far, and
	// farCertain how long each of some if it is: those of a process that starts on
	// a busy machine take a few milliseconds.
	farSuspected, farCertain = 5 * time.Millisecond, 8 * time.Millisecond
	// Of a limit whose half guard is less than tinyHalf, permits can come too late
	// again and again though some round trips are quicker than that. After
	// staleTries of them whoever waits takes one that may be late, as where Redis
	// is far.
	tinyHalf   = time.Millisecond
	staleTries = 3
	// farStep is in what steps the way there is told to Redis.
	farStep = 50 * time.Millisecond
	// maxFar is FAR in prelude.lua.
	maxFar = time.Second
)

// wayThere is how far ahead the places lie that this queue may use without
// having heard of a change, where a round trip makes that more than freshFor;
// else zero. Redis lets them stand when the configuration changes.
func (q *queue) wayThere() time.Duration {
	if !q.roundTrips.steady(farFrom) {
		return 0
	}
	least := q.roundTrips.least()
	way := freshFor + least + least/4
	return min((way+farStep-1)/farStep*farStep, maxFar)
}

// fresh is how long this queue may act on the configuration it last saw.
func (q *queue) fresh() time.Duration { return max(freshFor, q.far) }

// isFar reports whether the way to Redis alone takes longer than d. A process
// that starts tells from a few calls that take about equally long.
func (q *queue) isFar(d time.Duration, now time.Time) bool {
	starts := now.Sub(q.c.firstAt) < startFor
	if starts || q.roundTrips.n < len(q.roundTrips.last) {
		return q.roundTrips.steady(max(d, farCertain))
	}
	return q.roundTrips.allAbove(d)
}

// meet makes the first calls of a client. The very first takes long: it connects.
// A permit that came with it would be out of date, so it asks for none. Where it
// took so long that Redis may be far, the next ones tell how far, before permits
// come that would else be taken for late.
func (q *queue) meet() {
	began := time.Now()
	q.check()
	if time.Since(began) > farSuspected {
		for range steadyFrom {
			q.check()
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.c.way.Store(&roundTrips{last: q.roundTrips.last, n: q.roundTrips.n})
}
