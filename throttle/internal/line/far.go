package line

import "time"

const (
	// farFrom is how long the quickest call takes where Redis is far: what this
	// line knows of the configuration is then old when it gets there.
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

// wayThere is how far ahead the places lie that this line may use without
// having heard of a change, where a round trip makes that more than freshFor;
// else zero. Redis lets them stand when the configuration changes.
func (l *Line) wayThere() time.Duration {
	if !l.roundTrips.steady(farFrom) {
		return 0
	}
	return min(freshFor+l.roundTrips.least()*3/2, maxFar)
}

// lookBeside is after how long a look at the configuration is to go beside a call
// that is sent now, for a place that the call is too early to confirm: where Redis is
// far, a look after the call may come too late. Zero if there is no need.
func (l *Line) checkBeside(now Local) time.Duration {
	if l.far == 0 {
		return 0
	}
	first := forever
	for _, w := range l.holders {
		if d := w.grant.due.Sub(now); d >= l.fresh() {
			first = min(first, d)
		}
	}
	after := first - l.checkLead()
	if after >= l.roundTrips.median() {
		return 0
	}
	return max(after, 1)
}

// maybeFresh reports whether a permit that may be out of date by more than half
// the guard is to be handed out all the same, for the way to Redis lets nobody
// say more. As long as the guard has not passed, no window holds more than the
// limit.
func (l *Line) maybeFresh(w *Waiter, half time.Duration, now Local) bool {
	if l.isFar(half, now) {
		return true
	}
	within := now.Sub(w.grant.earliest) <= 2*half
	return l.roundTrips.median() > half && (within || w.stale >= staleTries && half < tinyHalf)
}

// isFar reports whether the way to Redis alone takes longer than d. A process
// that starts tells from a few calls that take about equally long.
func (l *Line) isFar(d time.Duration, now Local) bool {
	starts := now.Sub(l.Around.FirstCall) < startFor
	if starts || l.roundTrips.n < len(l.roundTrips.last) {
		return l.roundTrips.steadyAtStart(max(d, farCertain))
	}
	return l.roundTrips.allAbove(d)
}

// The first calls of a client are looks. The very first takes long: it connects. A
// permit that came with it would be out of date, so it asks for none. Where it
// took so long that Redis may be far, the next ones tell how far, before permits
// come that would else be taken for late.

// toMeet reports whether there is another such look to make.
func (l *Line) toMeasure() bool { return !l.Around.Answered || l.measuring > 0 }

// met takes up one of them.
func (l *Line) measured(c *Call, now Local) {
	switch {
	case c.first && now.Sub(c.since) > farSuspected:
		l.measuring = len(l.roundTrips.last)
	case l.measuring > 0:
		l.measuring--
	}
	if l.failures > 0 || l.roundTrips.n >= steadyFrom && (l.roundTrips.least() <= farSuspected || l.roundTrips.steadyAtStart(farCertain)) {
		l.measuring = 0 // it is known
	}
	l.out.WayKnown = l.measuring == 0
}
