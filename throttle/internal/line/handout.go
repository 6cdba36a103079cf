package line

import (
	"context"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

const (
	// wakeUp is about how long a goroutine takes from its timer to its work.
	wakeUp = 20 * time.Microsecond
	// lateClaim is how long after it was due a caller may claim what it reserved of a limit
	// without a guard. Those who wait for their permits get them however late it is.
	lateClaim = 10 * time.Millisecond
)

// handOut hands out the permits of a grant that is due, if they are fresh and the configuration is
// known to be that of the grant. If the present grant of w is not due yet, the actions say by how
// much it is too early. Otherwise an answer follows. If within is not zero, nothing is handed out:
// the actions only say whether the permits are due within that time.
func (l *Line) handOut(w *Waiter, within time.Duration, now Local) {
	w.awaited = true
	if within > 0 {
		w.until = w.reserved
	}
	if l.comesTooLate(w, now) || w.state != granted {
		return // asked for again meanwhile, or closed
	}
	if l.closed {
		l.letGo(w)
		l.answer(w, Answer{Err: ErrClosed})
		return
	}
	if !l.clock.known { // its grant is from a line before this one
		l.checkFirst(w)
		return
	}
	if d, early := l.untilDue(w, now); d > within {
		l.out.Sleep, l.out.Early, w.wakes = d-within, early, now.Add(d)
		return
	}
	if within > 0 { // until its caller comes, nobody hears of another time
		l.out.Near, w.awaited = true, !w.reservation
		return
	}
	if !l.current(&w.grant) { // it changed while nobody checked
		l.exchange(w, 0, now)
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
		l.exchangeStale(w, now)
		return
	}
	if half > 0 && now.Sub(w.grant.earliest) > half {
		overdue := now.Sub(w.grant.due) > half // even if it was due as late as it can be
		far := l.maybeFresh(w, half, now)
		// A permit from a slow call may be used if it is not much older. An exchange could
		// cost an interval, because the permits after it are taken by now.
		passes := w.grant.slow && now.Sub(w.grant.earliest) <= half*3/2
		if !w.grant.rechecked && !overdue && !far && !passes {
			// A slow reply, such as the first over a new connection, leaves open when the
			// permits were due. A check tells, and they may still be fresh. An exchange would
			// lose them. (One that may be used needs no check: by the reply it would be older.)
			w.grant.rechecked = true
			l.checkFirst(w)
			return
		}
		if !passes && (overdue || !far || l.clock.uncertainty() <= half) {
			if l.spares(w, now) {
				l.out.Stale++
				w.spared++
				w.next = true
				l.again(w, now)
				l.kick()
				return
			}
			w.stale++
			l.exchangeStale(w, now)
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
	l.mayComeBack(now)
	l.out.Taken = true
	if half >= tinyHalf { // what is left of the guard, a quarter of it unless the permit is a late one, is for the caller's own way
		l.out.Latest = max(w.grant.earliest.Add(half*3/2), now.Add(half/2))
	}
}

// comesTooLate handles permits that a change moved while nobody waited for them. Their caller has come now, and says how
// long it can wait. If they are due later than that, they are denied. If their new time is not known yet, Redis is asked.
func (l *Line) comesTooLate(w *Waiter, now Local) bool {
	if !w.moved || w.until == 0 || l.closed || !l.clock.known {
		return false
	}
	if w.state != granted {
		l.askAt = 0
		l.kick()
		return false
	}
	l.timed(&w.grant)
	if w.grant.earliest <= max(w.until, now) {
		return false
	}
	l.giveBack(returned{grant: w.grant, ns: w.ns}, now)
	l.letGo(w)
	l.kick()
	l.deny(w, w.grant.earliest.Sub(now), 0)
	return true
}

// missed exchanges permits that were handed out, and whose caller went on too late: on a busy machine its goroutine,
// or its process, may stand still just then.
func (l *Line) missed(w *Waiter, now Local) {
	switch {
	case l.closed:
		l.out.Stale++
		l.answer(w, Answer{Err: ErrClosed})
	case w.left:
		l.out.Stale++
		l.giveBack(returned{grant: w.grant, ns: w.ns}, now)
		l.kick()
		l.answer(w, Answer{Err: context.Canceled})
		w.state = gone
	default:
		l.exchangeStale(w, now)
	}
}

// exchangeStale exchanges permits that came too late. If w can still have others now, it has them before those who move up.
func (l *Line) exchangeStale(w *Waiter, now Local) {
	l.out.Stale++
	w.next = slices.ContainsFunc(l.config, func(s script.Settings) bool { return countsIn(s, w.grant.due, now) })
	announce := l.toAnnounce(w.grant, w.ns, now)
	l.exchange(w, announce, now)
	if announce != 0 && l.moveUpAt == 0 { // no announcement may come: of one process alone, or to a user who may not publish
		l.moveUpAt = now.Add(freshFor)
	}
}

// timed records what later replies tell about when a grant is due. If it was due when it was
// granted, it does not become younger because the clock was set back since.
func (l *Line) timed(p *grant) {
	earliest, due := l.clock.at(p.at)
	if !p.ahead {
		earliest, due = min(earliest, p.due), min(due, p.due)
	}
	p.earliest, p.due = earliest, due
}

// untilDue is how long to sleep before the grant of w is due. Later replies may tell more
// exactly when that is: a grant from a slow round trip is checked again at the earliest time
// at which it can be due. The timer is to fire early by as much as timers are late, where
// that matters.
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
	return l.handsOut(&w.grant).Sub(now), early
}

// handsOut is when a grant is handed out whose time is known well enough.
func (l *Line) handsOut(p *grant) Local { return p.due.Add(dueAfter(p.rank, l.halfGuard()/8)) }

// dueAfter is how long after its time a grant of this rank is due, less than most. Timers for
// the same time fire in any order; these fire in order of rank.
func dueAfter(rank int, most time.Duration) time.Duration {
	after := float64(rank) * float64(wakeUp)
	return time.Duration(after * float64(most) / (after + float64(most) + 1))
}

// checkFirst has the configuration checked before w goes on.
func (l *Line) checkFirst(w *Waiter) {
	w.state = unsure
	l.keep(w)
	l.kick()
}

// exchange gives a grant back and asks for another, in one call. Those who wait for the members in announce hear of it.
func (l *Line) exchange(w *Waiter, announce int64, now Local) {
	l.returns = append(l.returns, returned{grant: w.grant, ns: w.ns, by: w, announce: announce})
	l.again(w, now)
	l.kick()
}

const (
	// spareShare bounds how many permits that came too late are left unused in a span, rather
	// than given back: one part in so many of the limit. spareTries is how often that is done
	// for one request.
	spareShare, spareTries = 64, 2
)

// spares reports whether a permit of w that came too late is to count as used. That is done
// with few permits, and only where many limits share calls. Asking for another permit goes by
// the short way. An exchange does not, and is expensive just when everybody has too much to
// do.
func (l *Line) spares(w *Waiter, now Local) bool {
	if !w.grant.shared || w.spared >= spareTries {
		return false
	}
	s := &l.config[0] // a line that shares a call has one member
	if now.Sub(l.sparedAt) >= s.Span() {
		l.spared, l.sparedAt = 0, now
	}
	if l.spared+w.ns[0] > s.Rate/spareShare || s.PerPermit(w.ns[0]) >= freeTime {
		return false
	}
	l.spared += w.ns[0]
	return true
}

// again puts a waiter whose grant can no longer be used ahead of the others. If nobody waits for its reservation yet, nobody
// would hear of a denial. So it accepts any time now, and its caller finds out when it comes (comesTooLate).
func (l *Line) again(w *Waiter, now Local) {
	w.state = queued
	w.now = w.now || w.until != 0 && now >= w.until
	if w.reservation && !w.awaited {
		w.until, w.now, w.moved = 0, false, true
	}
	l.giveBackHeld() // they may be of no use either
	l.letGo(w)
	l.front = append(l.front, w)
}
