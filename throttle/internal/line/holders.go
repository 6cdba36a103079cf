package line

import (
	"cmp"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// keep adds a waiter that has a grant to the holders.
func (l *Line) keep(w *Waiter) {
	if w.index >= 0 {
		return
	}
	w.index = len(l.holders)
	l.holders = append(l.holders, w)
	for i, n := range w.ns {
		l.reserved[i] += n
	}
}

// letGo undoes keep.
func (l *Line) letGo(w *Waiter) {
	if w.index < 0 {
		return
	}
	last := len(l.holders) - 1
	l.holders[w.index] = l.holders[last]
	l.holders[w.index].index = w.index
	l.holders[last] = nil
	l.holders, w.index = l.holders[:last], -1
	for i, n := range w.ns {
		l.reserved[i] -= n
	}
}

// turn is the position of a waiter that has a grant among the others.
type turn struct {
	at Remote // when it is due
	no uint64 // those that are due at the same time are in order of arrival
}

func (w *Waiter) turn() turn { return turn{w.grant.at, w.no} }

func (t turn) compare(u turn) int { return cmp.Or(cmp.Compare(t.at, u.at), cmp.Compare(t.no, u.no)) }

// byDue returns the waiters that have a grant, in turn.
func (l *Line) byDue() []*Waiter {
	ws := slices.Clone(l.holders)
	slices.SortFunc(ws, func(a, b *Waiter) int { return a.turn().compare(b.turn()) })
	return ws
}

// unclaimed reports whether nobody has come for a reservation before it was due and its guard
// was over. Its permits count as used, and the line need not watch it any more.
func (l *Line) unclaimed(w *Waiter, now Local) bool {
	return w.reservation && w.state == granted && now.Sub(w.grant.due) >= 2*l.halfGuard()
}

// current reports whether a grant is of the configuration last heard of.
func (l *Line) current(p *grant) bool {
	for i, epoch := range p.epochs {
		if epoch != l.config[i].Epoch {
			return false
		}
	}
	return true
}

// freed records that permits went back, so that earlier ones may be available.
func (l *Line) freed(now Local) {
	if l.closed || !l.calling && len(l.holders)+len(l.front)+len(l.waiting) == 0 {
		return
	}
	l.moveUpAt = max(now, l.movedUpAt.Add(freshFor))
	switch {
	case l.calling:
	case l.moveUpAt > now:
		l.arm(now)
	default:
		l.kick()
	}
}

// moving is how far a line has moved up, if one call had no room for all its grants.
type moving struct {
	last turn   // of the latest grant that was asked for again
	upTo uint64 // the last arrival that moves up
}

// moveUp asks again for the grants that are not near, if permits went back. It begins at most once in freshFor, however
// often that is announced. It does not begin while Redis is in trouble: nobody knows whether Redis still serves what is
// asked then. A grant goes back in the call that asks for another one, so that nobody else gets it. If there are too many
// grants for one call, the rest keep theirs until the next. A reservation that nobody waits for yet keeps its grant, because
// its caller may come at the time that it was told. Waiters in front ask after those that move up, because these may give
// back less than they take.
func (l *Line) moveUp(now Local) {
	m := l.moving
	switch {
	case l.closed, l.trouble != nil:
		return
	case m == (moving{}):
		if l.moveUpAt == 0 || now < l.moveUpAt {
			return
		}
		m.upTo, l.movedUpAt, l.moveUpAt = l.arrivals, now, 0
	case len(l.front) > 0: // they have given back what they had
		return
	}
	front := l.front
	l.front, l.moving = nil, moving{}
	defer func() { l.front = append(l.front, front...) }()
	near := max(freshFor, 2*l.roundTrips.median())
	stale := 0
	for _, ws := range [][]*Waiter{l.holders, front, l.waiting} {
		for _, w := range ws {
			stale = max(stale, w.stale)
		}
	}
	var last turn
	var run script.Run
	runs, grants := 0, len(l.returns) // what is given back already comes first
	for _, w := range l.byDue() {
		switch {
		case w.turn().compare(m.last) <= 0, w.no > m.upTo, !w.movable():
			continue
		case w.grant.due.Sub(now) <= near, w.until != 0 && w.until.Sub(w.grant.due) < time.Millisecond: // runOf rounds
			continue
		}
		if w.stale > 0 {
			w.stale = stale // as collect does
		}
		r := l.runOf(w, now)
		if w.grant.due.Sub(now) <= r.Lead { // it would come later
			continue
		}
		if runs == 0 || !run.Like(&r) {
			run = r
			runs++
		}
		if w.grant.at != last.at {
			grants++
		}
		if runs > maxRuns/2 || grants > maxReturns/2 || len(l.front) == maxBatch/2 { // the other half of the call is for the others
			l.moving = moving{last, m.upTo}
			break
		}
		last = w.turn()
		l.exchange(w, 0, now)
	}
	if held := l.comeback.held; len(held) > 0 && held[len(held)-1].grant.due.Sub(now) > freshFor {
		l.giveBackHeld()
	}
	l.askAt = 0
}
