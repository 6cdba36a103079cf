package line

import "time"

const (
	// stockShare bounds what a client may hold in stock: one part in so many
	// of the limit.
	stockShare = 16
	// stockFrom is how many permits must have been used within half a guard
	// before a stock is worth while.
	stockFrom = 4
)

// stock is what a client took beyond what was asked for: as long as more than
// half of the limit is free, callers that come one at a time would each pay a
// round trip for a certain answer. A stock is of requests for one permit of
// each member; it lasts half a guard, so it is as exact as any permit,
// and is of use while the configuration is known to be that of it.
type stock struct {
	size  int64
	left  int64
	place place
	until Local

	// How many were used lately, in two halves of the time a stock lasts.
	used, usedBefore int64
	since            Local
}

// isOne reports whether a request is for one permit of each member.
func isOne(ns []int64) bool {
	for _, n := range ns {
		if n != 1 {
			return false
		}
	}
	return true
}

// draw hands out permits from the stock, if nobody waits for theirs.
func (l *Line) draw(ns []int64, now Local) bool {
	if !l.mayUseStock(now) || len(l.front)+len(l.waiting) > 0 || !isOne(ns) {
		return false
	}
	l.stock.left--
	return true
}

// seatWaiting gives those who came while a call was under way what it brought
// beyond what was asked for: each in turn, without a call of their own.
func (l *Line) seatWaiting(now Local) {
	for len(l.front) == 0 && len(l.waiting) > 0 && isOne(l.waiting[0].ns) && l.mayUseStock(now) {
		w := l.waiting[0]
		l.waiting = l.waiting[1:]
		l.stock.left--
		l.seat(w, l.stock.place)
	}
	if len(l.waiting) == 0 {
		l.urgentAt = 0
	}
}

// mayUseStock reports whether there is a stock, and the configuration is known
// to be that of it: a guard may be long.
func (l *Line) mayUseStock(now Local) bool {
	return l.stock.left > 0 && !l.closed && now < l.stock.until && now.Sub(l.heardAt) < l.fresh()
}

// handedOut counts permits that are now their caller's.
func (l *Line) handedOut(ns []int64, now Local) {
	var n int64
	for _, x := range ns {
		n = max(n, x)
	}
	l.out.Grants += n
	l.surplus.served(l.config, l.contenders, now)
	if c := l.config[0]; c.Rate > 0 {
		l.used.add(ns[0], c.Span(), now)
	}
	half := l.halfGuard()
	if half == 0 || !isOne(ns) {
		return
	}
	s := &l.stock
	s.turn(now, half)
	s.used++
}

func (s *stock) turn(now Local, half time.Duration) {
	switch passed := now.Sub(s.since); {
	case passed < half:
		return
	case passed < 2*half:
		s.usedBefore = s.used
	default:
		s.usedBefore = 0
	}
	s.used, s.since = 0, now
}

// wanted is how much stock to ask for with the next batch: what the last half
// of a guard used, within bounds that keep small limits exact to the permit.
func (l *Line) wanted(now Local) int64 {
	half := l.halfGuard()
	if half == 0 || l.binds(now) {
		return 0
	}
	l.stock.turn(now, half)
	n := max(l.stock.used, l.stock.usedBefore)
	if n < stockFrom {
		return 0
	}
	for _, s := range l.config {
		n = min(n, s.Rate/stockShare)
	}
	return n
}

// expireStock ends a stock whose time is over. A small rest counts as used: to
// give it back would cost more than it is worth while half of the limit is free.
func (l *Line) expireStock(now Local) {
	switch s := &l.stock; {
	case s.left == 0 || now < s.until:
	case s.left > s.size/2:
		l.returnStock()
	default:
		s.left = 0
	}
}

// returnStock gives back what is left of the stock.
func (l *Line) returnStock() {
	if l.stock.left == 0 {
		return
	}
	ns := make([]int64, len(l.config))
	for i := range ns {
		ns[i] = l.stock.left
	}
	l.returns = append(l.returns, returned{place: l.stock.place, ns: ns})
	l.stock.left = 0
}
