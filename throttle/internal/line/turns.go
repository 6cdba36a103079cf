package line

import (
	"cmp"
	"slices"
	"time"
)

const (
	// onItsWay is how long before a grant is due its caller may be on its way to it: timers are coarse. If callers came earlier
	// than they ask (Waiter.Among), they may be getting what they need besides the permits from preparesFor before that.
	onItsWay, preparesFor = time.Millisecond, 20 * time.Millisecond
	// Late ones may ask for different numbers of permits, or stand among different ones. kindsAtOnce bounds for how many of these
	// kinds one reply gives turns: each takes a pass over all waiters that have a grant. Those whose permits came too late come
	// first. Late ones of other kinds get their permits behind the others.
	kindsAtOnce = 8
)

// denial is what to tell a waiter if it has no turn in its process either.
type denial struct {
	w      *Waiter
	wait   time.Duration
	member int
}

// turns gives late ones the next turns in this process (inTurn). Those that Redis denied (b.denied), and that got no turn,
// are denied. held are the waiters that got nothing from the reply to a batch. turns returns those that still have nothing
// and were not denied.
func (l *Line) turns(b *batch, held []*Waiter, now Local) []*Waiter {
	for _, d := range b.denied {
		held = append(held, d.w)
	}
	held = l.inTurn(held, now)
	for _, d := range b.denied {
		if d.w.state == queued {
			l.deny(d.w, d.wait, d.member)
		}
	}
	return slices.DeleteFunc(held, func(w *Waiter) bool { return w.state == done })
}

// inTurn gives late ones the next turns in this process. A late one is a waiter whose permits came too late, while they
// still counted (Waiter.next), or one that takes the turns of those that came later (Waiter.among). It gets the grant of the first
// waiter behind it that is like it. That waiter gets the grant of the next one, and so on. Nobody gets a time that is too late for
// it. A waiter keeps its time if its caller may be on its way to the permits, or sleeps until then on its own. held are the waiters
// without a grant. inTurn returns those that still have none: first those whose permits came too late, then the others, each in the
// order in which they asked.
func (l *Line) inTurn(held []*Waiter, now Local) []*Waiter {
	ws := l.byDue()
	var kinds []*Waiter // a late one of each
	all := slices.Concat(held, ws)
	for _, counts := range []func(*Waiter) bool{func(w *Waiter) bool { return w.next }, (*Waiter).takesTurns} {
		for _, w := range all {
			if counts(w) && len(kinds) < kindsAtOnce && !slices.ContainsFunc(kinds, w.like) {
				kinds = append(kinds, w)
			}
		}
	}
	for _, w := range ws {
		l.timed(&w.grant) // as exactly as it is known by now
	}
	for _, kind := range kinds {
		held = l.inTurnFor(kind, ws, held, now)
	}
	slices.SortStableFunc(held, func(a, b *Waiter) int {
		switch {
		case a.next == b.next:
			return cmp.Compare(a.no, b.no)
		case a.next: // late ones ask ahead of the others
			return -1
		}
		return 1
	})
	return held
}

// byArrival orders waiters that are like each other.
func byArrival(a, b *Waiter) int { return cmp.Or(cmp.Compare(a.came, b.came), cmp.Compare(a.no, b.no)) }

// takesTurns reports whether it gets one of the next turns in this process.
func (w *Waiter) takesTurns() bool { return w.next || w.among != "" }

// like reports whether one of two waiters may get the turn of the other: they stand among the same, and ask for as much.
func (w *Waiter) like(v *Waiter) bool { return w.among == v.among && slices.Equal(w.ns, v.ns) }

// inTurnFor is inTurn for those who are like kind. ws are the holders, in turn.
func (l *Line) inTurnFor(kind *Waiter, ws, held []*Waiter, now Local) (still []*Waiter) {
	var next []*Waiter // those who are to get a grant next
	for _, w := range held {
		if w.takesTurns() && w.like(kind) {
			next = append(next, w)
		} else {
			still = append(still, w)
		}
	}
	short := len(next) // so many have none at the end
	owners := slices.DeleteFunc(slices.Clone(ws), func(w *Waiter) bool {
		return !w.movable() || !w.like(kind) || w.grant.due.Sub(now) <= onItsWay || w.among != "" && w.grant.due.Sub(now) <= preparesFor
	})
	var latest Local
	late := short
	for _, w := range owners {
		latest = max(latest, w.grant.due)
		if w.takesTurns() {
			late++
		}
	}
	owners = slices.DeleteFunc(owners, func(w *Waiter) bool { // they might get a time that is too late, or none
		switch {
		case w.until == 0, w.takesTurns() && late == 1: // the only late one gets no later one
			return false
		case w.until < latest:
			return true
		}
		return short > 0 && !l.hasTime(w, now)
	})
	grants := make([]grant, len(owners))
	for i, w := range owners {
		grants[i] = w.grant
		if w.takesTurns() {
			next = append(next, w)
		}
	}
	slices.SortFunc(next, byArrival)
	for i, w := range owners {
		useless := func(w *Waiter) bool { return w.until != 0 && w.until < grants[i].due }
		for len(next) > 0 && next[0].state == queued && useless(next[0]) {
			still, next = append(still, next[0]), next[1:]
		}
		if len(next) == 0 || next[0] != w && (!w.takesTurns() && byArrival(next[0], w) > 0 || useless(next[0])) {
			continue
		}
		if !w.takesTurns() {
			at, _ := slices.BinarySearchFunc(next, w, byArrival)
			next = slices.Insert(next, at, w)
		}
		if next[0] != w || w.grant.at != grants[i].at {
			l.takeTurn(next[0], grants[i])
		}
		next = next[1:]
	}
	for _, w := range next {
		if w.state == granted {
			l.letGo(w)
			w.state, w.putOff = queued, true
		}
	}
	return append(still, next...)
}

// takeTurn gives w the grant of another waiter. w is told if it had no grant, or would sleep too long.
func (l *Line) takeTurn(w *Waiter, g grant) {
	sleeps := w.state == granted && w.wakes <= l.handsOut(&g)
	w.grant, w.state = g, granted
	l.keep(w)
	if !sleeps {
		l.answer(w, Answer{})
	}
}

// hasTime reports whether a waiter that gives up its turn probably has time to get another from Redis: four times as long as
// that takes if all processes that contend are served before it.
func (l *Line) hasTime(w *Waiter, now Local) bool {
	if w.until == 0 {
		return true
	}
	d := l.horizon(w.ns)
	for i, s := range l.config {
		d = max(d, s.PerPermit(w.ns[i]*max(l.contenders, 1)))
	}
	return w.until.Sub(now) > 4*d
}

// movable reports whether a waiter may get another time: it has one, and its caller does not sleep until then by itself.
func (w *Waiter) movable() bool { return w.state == granted && (w.awaited || !w.reservation) }
