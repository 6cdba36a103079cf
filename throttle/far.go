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
	// Of a limit whose half guard is less than tinyHalf, permits can come later than
	// its whole guard again and again. After staleTries of them whoever waits takes
	// one that may be late, as where Redis is far.
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
	return min(freshFor+q.roundTrips.least()*3/2, maxFar)
}

// fresh is how long this queue may act on the configuration it last saw.
func (q *queue) fresh() time.Duration { return max(freshFor, q.far) }

// lookBeside has a look at the configuration go beside a call that is sent now,
// for a place that the call is too early to confirm: where Redis is far, a look
// after the call may come too late. The returned function gives it up unless it is
// under way.
func (q *queue) lookBeside(now time.Time) (stop func()) {
	if q.far == 0 {
		return func() {}
	}
	first := forever
	for w := range q.placed {
		if d := w.place.due.Sub(now); d >= q.fresh() {
			first = min(first, d)
		}
	}
	after := first - q.checkLead()
	if after >= q.roundTrips.median() {
		return func() {}
	}
	q.c.wg.Add(1)
	t := time.AfterFunc(after, func() {
		defer q.c.wg.Done()
		q.mu.Lock()
		doubts := q.doubts
		q.mu.Unlock()
		if reply, sent, err := q.c.evalAt(q.c.ctx, epochScript, q.names()); err == nil {
			q.looked(reply, sent, doubts, false)
			q.wake()
		}
	})
	return func() {
		if t.Stop() {
			q.c.wg.Done()
		}
	}
}

// maybeFresh reports whether a permit that may be out of date by more than half
// the guard is to be handed out all the same, for the way to Redis lets nobody
// say more. As long as the guard has not passed, no window holds more than the
// limit.
func (q *queue) maybeFresh(w *waiter, half time.Duration, now time.Time) bool {
	if q.isFar(half, now) {
		return true
	}
	within := now.Sub(w.place.earliest) <= 2*half
	return q.roundTrips.median() > half && (within || w.stale >= staleTries && half < tinyHalf)
}

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
		for range len(q.roundTrips.last) {
			q.check()
			if q.wayIsKnown() {
				break
			}
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.c.way.Store(&roundTrips{last: q.roundTrips.last, n: q.roundTrips.n})
}

// wayIsKnown reports whether the calls until now tell how far Redis is: that it
// is near, or that it is not.
func (q *queue) wayIsKnown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed || q.failures > 0 || q.roundTrips.n >= steadyFrom && (q.roundTrips.least() <= farSuspected || q.roundTrips.steady(farCertain))
}
