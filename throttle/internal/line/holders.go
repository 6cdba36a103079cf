package line

import (
	"cmp"
	"slices"
)

// hold keeps a waiter in mind that has a place.
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

// letGo undoes hold.
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

// inTurn are the waiters that have a place, in the order of their turns; those
// of one turn in the order of their arrival.
func (l *Line) byDue() []*Waiter {
	ws := slices.Clone(l.holders)
	slices.SortFunc(ws, func(a, b *Waiter) int {
		return cmp.Or(cmp.Compare(a.grant.at, b.grant.at), cmp.Compare(a.no, b.no))
	})
	return ws
}

// unclaimed reports whether nobody has come for a reservation before its turn and
// guard were over. Its permits count as used; the line need not look after it.
func (l *Line) unclaimed(w *Waiter, now Local) bool {
	return w.reservation && w.state == granted && now.Sub(w.grant.due) >= 2*l.halfGuard()
}

// current reports whether a place is of the configuration last heard of.
func (l *Line) current(p *grant) bool {
	for i, epoch := range p.epochs {
		if epoch != l.config[i].Epoch {
			return false
		}
	}
	return true
}

// freed takes up that permits were released, so that there may be earlier places.
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

// moveUp asks for the places again that are not near, if permits were released. That
// is done now and then, however many releases are heard of, and in one call, so
// that none is lost meanwhile. A reservation that nobody waits for yet keeps its
// place: its caller may come back when it was told.
func (l *Line) moveUp(now Local) {
	if l.closed || l.moveUpAt == 0 || now < l.moveUpAt {
		return
	}
	l.movedUpAt, l.moveUpAt = now, 0
	for _, w := range l.byDue() {
		if w.state == granted && (w.awaited || !w.reservation) && w.grant.due.Sub(now) > freshFor {
			l.exchange(w, now)
		}
	}
	l.askAt = 0
}
