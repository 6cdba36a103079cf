package throttle

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
	until time.Time

	// How many were used lately, in two halves of the time a stock lasts.
	used, usedBefore int64
	since            time.Time
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

// fromStock hands out permits from the stock, if nobody waits for theirs.
func (q *queue) fromStock(ns []int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if !q.stocked(ns, now) {
		return false
	}
	q.stock.left--
	q.handedOut(ns, now)
	return true
}

// seatFromStock gives a waiter a place from the stock, which is due.
func (q *queue) seatFromStock(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.stocked(w.ns, time.Now()) {
		return false
	}
	q.stock.left--
	w.place, w.state = q.stock.place, placed
	q.hold(w)
	return true
}

// seatWaiting gives those who came while a call was under way what it brought
// beyond what was asked for: each in turn, without a call of their own.
func (q *queue) seatWaiting(now time.Time) {
	for len(q.front) == 0 && len(q.waiting) > 0 && isOne(q.waiting[0].ns) && q.mayUseStock(now) {
		w := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.stock.left--
		q.seat(w, q.stock.place)
	}
	if len(q.waiting) == 0 {
		q.urgentAt = time.Time{}
	}
}

func (q *queue) stocked(ns []int64, now time.Time) bool {
	return q.mayUseStock(now) && len(q.front)+len(q.waiting) == 0 && isOne(ns)
}

// mayUseStock reports whether there is a stock, and the configuration is known
// to be that of it: a guard may be long.
func (q *queue) mayUseStock(now time.Time) bool {
	return q.stock.left > 0 && !q.closed && now.Before(q.stock.until) && now.Sub(q.heardAt) < q.fresh()
}

// handedOut counts permits that are now their caller's.
func (q *queue) handedOut(ns []int64, now time.Time) {
	var n int64
	for _, x := range ns {
		n = max(n, x)
	}
	q.c.grants.Add(n)
	q.surplus.served(q.config, q.contenders, now)
	if c := q.config[0]; c.rate > 0 {
		q.used.add(ns[0], c.span(), now)
	}
	half := q.halfGuard()
	if half == 0 || !isOne(ns) {
		return
	}
	s := &q.stock
	s.turn(now, half)
	s.used++
}

func (s *stock) turn(now time.Time, half time.Duration) {
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
func (q *queue) wanted(now time.Time) int64 {
	half := q.halfGuard()
	if half == 0 || q.binds(now) {
		return 0
	}
	q.stock.turn(now, half)
	n := max(q.stock.used, q.stock.usedBefore)
	if n < stockFrom {
		return 0
	}
	for _, s := range q.config {
		n = min(n, s.rate/stockShare)
	}
	return n
}

// expireStock ends a stock whose time is over. A small rest counts as used: to
// give it back would cost more than it is worth while half of the limit is free.
func (q *queue) expireStock(now time.Time) {
	switch s := &q.stock; {
	case s.left == 0 || now.Before(s.until):
	case s.left > s.size/2:
		q.returnStock()
	default:
		s.left = 0
	}
}

// returnStock gives back what is left of the stock.
func (q *queue) returnStock() {
	if q.stock.left == 0 {
		return
	}
	ns := make([]int64, len(q.members))
	for i := range ns {
		ns[i] = q.stock.left
	}
	q.returns = append(q.returns, returned{place: q.stock.place, ns: ns})
	q.stock.left = 0
}
