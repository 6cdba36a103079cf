package line

import "time"

const (
	// wakeUp is about how long a goroutine takes from its timer to its work.
	wakeUp = 20 * time.Microsecond
	// lateClaim is how much later than its turn a caller may claim what it reserved of
	// a limit without guard. Those who wait for theirs have it however late it is.
	lateClaim = 10 * time.Millisecond
)

// turn hands out the permits of a place that is due, if they are fresh and the
// configuration is known to be that of the place. If not, an answer follows; or,
// if it is early for the place that w has by now, it says by how much.
func (l *Line) handOut(w *Waiter, now Local) {
	w.awaited = true
	if w.state != granted {
		return // asked for again meanwhile, or closed
	}
	if l.closed {
		l.letGo(w)
		l.answer(w, Answer{Err: ErrClosed})
		return
	}
	if !l.clock.known { // its place is of a line before this one
		l.checkFirst(w)
		return
	}
	if d, early := l.untilDue(w, now); d > 0 {
		l.out.Sleep, l.out.Early = d, early
		return
	}
	if !l.current(&w.grant) { // it changed while nobody looked
		l.exchange(w, now)
		return
	}
	if now.Sub(l.heardAt) >= l.fresh() && now.Sub(w.grant.confirmed) >= freshFor {
		l.checkFirst(w)
		return
	}
	half := l.halfGuard()
	if half > 0 {
		l.timed(&w.grant)
	} else if w.claimed.Sub(w.grant.due) > lateClaim {
		l.out.Stale++
		l.exchange(w, now)
		return
	}
	if half > 0 && now.Sub(w.grant.earliest) > half {
		overdue := now.Sub(w.grant.due) > half // wherever in between its turn was
		far := l.maybeFresh(w, half, now)
		if !w.grant.rechecked && !overdue && !far {
			// A slow reply, the first over a new connection say, leaves open when its
			// turn was. A look tells, and it may be fresh yet; an exchange would
			// cost it its turn.
			w.grant.rechecked = true
			l.checkFirst(w)
			return
		}
		// One of a slow call may be used if it is not much older: to exchange it could
		// cost an interval, for the places after it are taken by now.
		passes := w.grant.slow && now.Sub(w.grant.earliest) <= half*3/2
		if !passes && (overdue || !far || l.clock.uncertainty() <= half) {
			l.out.Stale++
			if l.spares(w, now) {
				w.spared++
				l.again(w, now)
				l.kick()
				return
			}
			w.stale++
			l.exchange(w, now)
			return
		}
		l.out.Late++
	}
	w.state = done
	l.letGo(w)
	if w.grant.ahead {
		l.gathering.handed(1, now)
	}
	l.countHandedOut(w.ns, now)
	l.out.Taken = true
}

// timed takes up what replies that came since tell of when a place is due. One that was
// due when it was granted is no younger for a clock that was set back meanwhile.
func (l *Line) timed(p *grant) {
	earliest, due := l.clock.at(p.at)
	if !p.ahead {
		earliest, due = min(earliest, p.due), min(due, p.due)
	}
	p.earliest, p.due = earliest, due
}

// untilDue is how long to sleep before the place of w is due. Replies that came
// since may tell more exactly when that is: a place granted in a slow round
// trip is looked at again at the earliest moment it can be. The timer is to fire
// early by as much as timers are late, where that matters.
func (l *Line) untilDue(w *Waiter, now Local) (d, early time.Duration) {
	if !w.grant.ahead {
		return 0, 0
	}
	half := l.halfGuard()
	l.timed(&w.grant)
	if late := l.Around.TimerLate; half > 0 && half < 2*late {
		early = late
	}
	if d := w.grant.earliest.Sub(now); d > 0 && w.grant.due.Sub(w.grant.earliest) > half/2 {
		return d, early
	}
	return w.grant.due.Add(dueAfter(w.grant.rank, half/8)).Sub(now), early
}

// turnAfter is how long after its moment a place of this rank falls due, less than
// most. Timers of the same moment fire in any order; these fire in turn.
func dueAfter(rank int, most time.Duration) time.Duration {
	after := float64(rank) * float64(wakeUp)
	return time.Duration(after * float64(most) / (after + float64(most) + 1))
}

// lookFor has the configuration looked at before w goes on.
func (l *Line) checkFirst(w *Waiter) {
	w.state = unsure
	l.keep(w)
	l.kick()
}

// exchange gives a place back and asks for another, in one call.
func (l *Line) exchange(w *Waiter, now Local) {
	l.returns = append(l.returns, returned{grant: w.grant, ns: w.ns, by: w})
	l.again(w, now)
	l.kick()
}

const (
	// spareShare is up to what part of a limit is left unused in a span for permits
	// that came too late, rather than given back; spareTries how often that is
	// done for one request.
	spareShare, spareTries = 64, 2
)

// spares reports whether a permit of w that came too late is to count as used: one of
// few, of one of many limits. To ask for another takes the short
// way, and an exchange does not, which is dear just when all have too much to do.
func (l *Line) spares(w *Waiter, now Local) bool {
	if !w.grant.shared || w.spared >= spareTries {
		return false
	}
	s := &l.config[0] // a call is shared for one
	if now.Sub(l.sparedAt) >= s.Span() {
		l.spared, l.sparedAt = 0, now
	}
	if l.spared+w.ns[0] > s.Rate/spareShare {
		return false
	}
	l.spared += w.ns[0]
	return true
}

// again puts a waiter whose place is of no use any more ahead of the others.
func (l *Line) again(w *Waiter, now Local) {
	w.state = queued
	w.now = w.now || w.until != 0 && now >= w.until
	l.letGo(w)
	l.front = append(l.front, w)
}
