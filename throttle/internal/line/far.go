package line

import "time"

const (
	// farFrom is how long the quickest call takes at least where Redis is far: what a reply
	// says about the configuration is then old when it arrives.
	farFrom = freshFor / 4
	// farSuspected is how long a first call takes at least if Redis may be far. farCertain is
	// how long each of several calls takes at least if Redis is far: calls of a process that
	// starts on a busy machine take a few milliseconds.
	farSuspected, farCertain = 5 * time.Millisecond, 8 * time.Millisecond
	// If half the guard of a limit is less than tinyHalf, its permits can come later than its
	// whole guard again and again. After staleTries such permits, a waiter takes one that may
	// be late, as it does where Redis is far.
	tinyHalf   = time.Millisecond
	staleTries = 3
	// farStep is the step to which the distance that Redis is told is rounded up.
	farStep = 50 * time.Millisecond
	// maxFar is FAR in prelude.lua.
	maxFar = time.Second
)

// wayThere is for how long ahead this line may use its grants without having heard of a
// change. It is zero unless a long round trip makes that more than freshFor. Redis lets these
// grants stand when the configuration changes.
func (l *Line) wayThere() time.Duration {
	if !l.roundTrips.steady(farFrom) {
		return 0
	}
	return min(freshFor+l.roundTrips.least()*3/2, maxFar)
}

// checkBeside is how long after a call that is sent now a check of the configuration is to go
// beside it, for a grant that the call is too early to confirm: where Redis is far, a check
// after the call may come too late. It is zero if there is no need.
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

// maybeFresh reports whether a permit that may be out of date by more than half the guard is
// to be handed out all the same, because the way to Redis is too long to know better. As long
// as the guard has not passed, no window holds more than the limit.
func (l *Line) maybeFresh(w *Waiter, half time.Duration, now Local) bool {
	if l.isFar(half, now) {
		return true
	}
	within := now.Sub(w.grant.earliest) <= 2*half
	return l.roundTrips.median() > half && (within || w.stale >= staleTries && half < tinyHalf)
}

// isFar reports whether the way to Redis alone takes longer than d. A process that starts can
// tell that from a few calls that take about equally long.
func (l *Line) isFar(d time.Duration, now Local) bool {
	starts := now.Sub(l.Around.FirstCall) < startFor
	if starts || l.roundTrips.n < len(l.roundTrips.last) {
		return l.roundTrips.steadyAtStart(max(d, farCertain))
	}
	return l.roundTrips.allAbove(d)
}

// The first calls of a client are checks. The very first takes long because it connects. A
// permit that came with it would be out of date, so it asks for none. If it took so long that
// Redis may be far, the next calls find out how far, before permits come that would otherwise
// be taken for late.

// toMeasure reports whether there is another such check to make.
func (l *Line) toMeasure() bool { return !l.Around.Answered || l.measuring > 0 }

// countFirst counts the first call as a round trip, too, without the time that it took to connect. at, sent and received are
// those of the second call. What Redis's clock showed in both replies tells how much longer the first was on its way than
// the second. Where Redis is far, to connect takes at least another round trip. So if the second call took more than half as
// long as the first, it was held up, and the first is not counted.
func (l *Line) countFirst(at Remote, sent, received Local) {
	_, latest := l.clock.at(at) // if the first answer had come at once
	second, first := received.Sub(sent), latest.Sub(sent)
	if second > farFrom && 2*second <= l.firstTook && (first-second).Abs() <= second/4 {
		l.roundTrips.add(first, received)
	}
}

// measured handles a check that measures the way to Redis.
func (l *Line) measured(c *Call, now Local) {
	if c.first {
		l.firstTook = now.Sub(c.since)
	}
	switch {
	case c.first && l.firstTook > farSuspected:
		l.measuring = len(l.roundTrips.last)
	case l.measuring > 0:
		l.measuring--
	}
	least := l.roundTrips.least()
	switch {
	case l.failures > 0 || l.roundTrips.n >= steadyFrom && (least <= farSuspected || l.roundTrips.steadyAtStart(farCertain)):
		l.measuring = 0 // the way is known
	case least > farFrom && 2*least <= l.firstTook && l.roundTrips.within(least) == steadyFrom-1 && l.toAsk(now):
		l.measuring, l.almostKnown = 0, l.roundTrips.n // the call for permits is one more
		return
	}
	l.out.WayKnown = l.measuring == 0
}

// confirmed handles the end of the call for permits that counted as the last of these checks. If it took another time, the
// checks go on, up to as many as without that call.
func (l *Line) confirmed() {
	l.almostKnown = 0
	if !l.roundTrips.steady(farFrom) {
		l.measuring = max(len(l.roundTrips.last)-l.roundTrips.n, 0)
	}
	l.out.WayKnown = l.measuring == 0
}
