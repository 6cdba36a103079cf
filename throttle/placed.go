package throttle

import (
	"cmp"
	"slices"
	"time"
)

// hold keeps a waiter in mind that has a place.
func (q *queue) hold(w *waiter) {
	if _, ok := q.placed[w]; ok {
		return
	}
	q.placed[w] = struct{}{}
	for i, n := range w.ns {
		q.reserved[i].Add(n)
	}
}

// letGo undoes hold.
func (q *queue) letGo(w *waiter) {
	if _, ok := q.placed[w]; !ok {
		return
	}
	delete(q.placed, w)
	for i, n := range w.ns {
		q.reserved[i].Add(-n)
	}
}

// inTurn are the waiters that have a place, in the order of their turns; those
// of one turn in the order of their arrival.
func (q *queue) inTurn() []*waiter {
	ws := make([]*waiter, 0, len(q.placed))
	for w := range q.placed {
		ws = append(ws, w)
	}
	slices.SortFunc(ws, func(a, b *waiter) int {
		return cmp.Or(cmp.Compare(a.place.at, b.place.at), cmp.Compare(a.no, b.no))
	})
	return ws
}

// left reports whether nobody has come for a reservation before its turn and
// guard were over. Its permits count as used; the queue need not look after it.
func (q *queue) left(w *waiter, now time.Time) bool {
	return w.hold && w.state == placed && now.Sub(w.place.due) >= 2*q.halfGuard()
}

// current reports whether a place is of the configuration last heard of.
func (q *queue) current(p place) bool {
	for i, epoch := range p.epochs {
		if epoch != q.config[i].epoch {
			return false
		}
	}
	return true
}

// moveUp has the places asked for anew that are not near: permits were released,
// so there may be earlier ones. That is done now and then, however many releases
// are heard of. A reservation that nobody waits for yet keeps its place: its caller
// may come back when it was told.
func (q *queue) moveUp() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if q.closed || !q.running && len(q.placed)+len(q.front)+len(q.waiting) == 0 {
		return
	}
	q.moveUpAt = later(now, q.movedUpAt.Add(freshFor))
	switch {
	case q.running:
	case q.moveUpAt.After(now):
		q.arm(now)
	default:
		q.kick()
	}
}

// moveUpNow does so if it is time: in one call, so that none is lost meanwhile.
func (q *queue) moveUpNow(now time.Time) {
	if q.closed || q.moveUpAt.IsZero() || now.Before(q.moveUpAt) {
		return
	}
	q.movedUpAt, q.moveUpAt = now, time.Time{}
	for _, w := range q.inTurn() {
		if w.state == placed && (w.awaited || !w.hold) && w.place.due.Sub(now) > freshFor {
			q.exchange(w)
		}
	}
	q.askAt = time.Time{}
}
