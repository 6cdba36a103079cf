package line

import (
	"cmp"
	"slices"
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

// byDue returns the waiters that have a grant, in the order in which they are due. Those that
// are due at the same time are in order of arrival.
func (l *Line) byDue() []*Waiter {
	ws := slices.Clone(l.holders)
	slices.SortFunc(ws, func(a, b *Waiter) int {
		return cmp.Or(cmp.Compare(a.grant.at, b.grant.at), cmp.Compare(a.no, b.no))
	})
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

// freed records that permits were released, so that earlier permits may be available.
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

// moveUp asks again for the grants that are not near, if permits were released. It does so at
// most once in freshFor, however many releases are announced, and in one call, so that no
// permit is lost meanwhile. A reservation that nobody waits for yet keeps its grant: its
// caller may come back at the time that it was told. Those who are in front ask after them: they may give back less
// than they take.
func (l *Line) moveUp(now Local) {
	if l.closed || l.moveUpAt == 0 || now < l.moveUpAt {
		return
	}
	front := l.front
	l.front = nil
	defer func() { l.front = append(l.front, front...) }()
	l.movedUpAt, l.moveUpAt = now, 0
	for _, w := range l.byDue() {
		if w.state == granted && (w.awaited || !w.reservation) && w.grant.due.Sub(now) > freshFor {
			l.exchange(w, now)
		}
	}
	if held := l.comeback.held; len(held) > 0 && held[len(held)-1].grant.due.Sub(now) > freshFor {
		l.giveBackHeld()
	}
	l.askAt = 0
}
