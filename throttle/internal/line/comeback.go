package line

import "time"

const (
	// A caller comes back at once if it asks again within comebackWithin of its permits.
	// It must have done so comebackFrom times in a row.
	comebackWithin, comebackFrom = time.Millisecond, 8
	// Then a call asks for up to comebackMore permits beyond the one that is waited for:
	// a call for eight costs Redis little more than a call for one. It asks for no more
	// than the limit gives in comebackAhead, because callers in other processes, who ask
	// before this caller is back, are served after these permits.
	comebackMore, comebackAhead = 7, 100 * time.Millisecond
	// comebackHalf is the least half guard: permits that come too late are lost to the limit.
	comebackHalf = 5 * time.Millisecond
)

// comeback serves a caller that waits alone in its process and comes back at once,
// such as a loop around Acquire. No second waiter shares its calls, so a call asks
// for a few permits more, which the caller finds when it comes back. They are
// reservations like any other: in the log, and in this process's share. They go back
// when the caller stays away, and with the next call when somebody else comes.
type comeback struct {
	row      int   // how many times in a row it came back at once
	handedAt Local // when it was handed the latest permits; zero: it has come back since
	held     []heldGrant
	until    Local // when to give the held ones back; zero: their caller waits
}

// heldGrant is permits of one grant for which no caller has come yet.
type heldGrant struct {
	grant grant
	n     int64
}

// more is how many permits a batch is to ask for beyond those that its waiters want.
func (l *Line) more(b *batch, now Local) int64 {
	c, half := &l.comeback, l.halfGuard()
	if c.row < comebackFrom || len(c.held)+len(l.holders)+len(l.waiting) > 0 || len(b.waiters) != 1 || len(b.waiters[0]) != 1 || !l.binds(now) {
		return 0
	}
	w := b.waiters[0][0]
	if w.reservation || w.now || w.stale > 0 || !IsOne(w.ns) || half < comebackHalf || l.roundTrips.least() > half/4 { // they would often be too late
		return 0
	}
	n := int64(comebackMore)
	for _, s := range l.config {
		if s.Smooth || s.Guard == 0 { // each permit is due at a time of its own; it would count for too short a time
			return 0
		}
		n = min(n, int64(comebackAhead/max(s.PerPermit(1), 1)))
	}
	return n
}

// holdMore keeps n permits of a grant beyond those that were waited for.
func (l *Line) holdMore(g grant, n int64) {
	l.comeback.held = append(l.comeback.held, heldGrant{g, n})
	l.reserve(n)
	if l.closed {
		l.giveBackHeld()
	}
}

// reserve counts n permits of each member among the reserved ones.
func (l *Line) reserve(n int64) {
	for i := range l.reserved {
		l.reserved[i] += n
	}
}

// comesBack gives a caller that arrives a held permit. If there is none for it, and it has
// to ask, its call gives back what is held.
func (l *Line) comesBack(w *Waiter, now Local) bool {
	c := &l.comeback
	if c.handedAt != 0 {
		if c.row++; now.Sub(c.handedAt) > comebackWithin {
			c.row = 0
		}
		c.handedAt = 0
	}
	if len(c.held) == 0 {
		return false
	}
	if l.calling || len(l.front)+len(l.waiting)+len(l.holders) > 0 || !l.suits(w, now) {
		l.giveBackHeld()
		return false
	}
	l.assign(w, l.takeHeld(), now)
	return true
}

// assignHeld gives held permits to waiters that came while the call was under way. If
// somebody waits after that, the rest is given back. Otherwise it stays held.
func (l *Line) assignHeld(now Local) {
	c := &l.comeback
	for len(l.front) == 0 && len(l.waiting) > 0 && len(c.held) > 0 && l.suits(l.waiting[0], now) {
		w := l.waiting[0]
		l.waiting = l.waiting[1:]
		l.assign(w, l.takeHeld(), now)
	}
	switch {
	case len(l.front)+len(l.waiting) > 0:
		l.giveBackHeld()
	case len(c.held) > 0 && len(l.holders) == 0 && c.until == 0: // whoever it is held for has left, or has its permits
		c.until = now.Add(comebackWithin)
	}
}

// suits reports whether a waiter can use the first held grant.
func (l *Line) suits(w *Waiter, now Local) bool {
	g := &l.comeback.held[0].grant
	return !w.reservation && !w.now && IsOne(w.ns) && l.inTime(g, now) && (w.until == 0 || g.due <= w.until)
}

// takeHeld takes one permit of the first held grant, for whoever waits now.
func (l *Line) takeHeld() grant {
	c := &l.comeback
	h := &c.held[0]
	h.grant.rank++
	g := h.grant
	if h.n--; h.n == 0 {
		c.held = c.held[1:]
	}
	c.until = 0
	l.reserve(-1)
	return g
}

// inTime reports whether there is time to use a held grant: a caller exchanges a permit
// that is later than half the guard.
func (l *Line) inTime(g *grant, now Local) bool {
	l.timed(g)
	return now.Sub(g.earliest) <= l.halfGuard()/2
}

// mayComeBack records that a caller has its permits and may come back.
func (l *Line) mayComeBack(now Local) {
	c := &l.comeback
	if c.handedAt = now; len(c.held) == 0 {
		return
	}
	if c.until = now.Add(comebackWithin); !l.calling {
		l.arm(now)
	}
}

// giveBackHeld gives back what is held.
func (l *Line) giveBackHeld() {
	c := &l.comeback
	if len(c.held) > 0 {
		l.fullUntil = 0 // others may have these
	}
	for _, h := range c.held {
		ns := make([]int64, len(l.config))
		for i := range ns {
			ns[i] = h.n
		}
		l.returns = append(l.returns, returned{grant: h.grant, ns: ns})
		l.reserve(-h.n)
	}
	c.held, c.until = nil, 0
}

// forgetHeld drops held permits of a configuration that changed: like those of waiters,
// they are no longer in the log of the limiter that changed. A group gives them back,
// for the logs of the others.
func (l *Line) forgetHeld() {
	before := l.returns
	if l.giveBackHeld(); len(l.config) == 1 {
		l.returns = before
	}
}
