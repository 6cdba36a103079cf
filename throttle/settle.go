package throttle

import (
	"math/rand/v2"
	"time"
)

const (
	// herd is how many contenders are too many to ask whenever the horizon moves.
	herd = 100
	// turnsFrom is how long a turn of all contenders takes at the least for
	// them to spread what they ask, turnsTo over how long at the most: for so
	// long a process may overlook that the others have gone.
	turnsFrom, turnsTo = 250 * time.Millisecond, 5 * time.Second
	// wakeUp is about how long a goroutine takes from its timer to its work.
	wakeUp = 20 * time.Microsecond
)

// settle hands the reply to a batch out to its waiters. sent is when the
// attempt was made that is answered.
func (q *queue) settle(b *batch, r batchReply, sent, received time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.trouble = nil
	q.roundTrips.add(received.Sub(sent), received)
	q.clock.learn(r.now, sent, received)
	switch r.status {
	case statusOK:
	case statusOld:
		q.renew(b)
		return
	case statusLate:
		q.expired(b, received)
		return
	default:
		q.refuse(b, r)
		return
	}
	if b.fast == nil || b.fast.declined {
		q.told.learn(r.now, sent, received)
		q.far = b.far
	}
	unknown := q.config[0].epoch == 0
	q.learn(r, b.asked, b.doubts)
	q.confirm(b.asked, received)
	if r.contenders > 0 {
		q.contenders = r.contenders
	}
	var held []*waiter
	q.askAt, q.binding = time.Time{}, false
	for i, run := range b.runs {
		answer := r.runs[i]
		ws := run.waiters
		for _, g := range answer.grants {
			p := place{at: r.base + g.offset, epochs: r.epochs}
			p.earliest, p.due = q.clock.at(p.at)
			p.ahead = p.at > r.now
			p.slow = !p.ahead && received.Sub(sent) > q.halfGuard()
			if p.ahead {
				q.binding = true
				q.gathering.waited(p.due)
			} else if run.stock == 0 {
				q.gathering.handed(int(g.count), received)
			}
			p.confirm(b.asked, received, q.fresh())
			q.fullUntil = p.due
			if run.stock > 0 {
				q.stock.size, q.stock.left, q.stock.place, q.stock.until = g.count, g.count, p, p.earliest.Add(q.halfGuard())
				continue
			}
			q.fullFor = run.waiters[0].ns
			k := min(int(g.count), len(ws))
			if p.at != q.moment {
				q.moment, q.seated = p.at, 0
			}
			for _, w := range ws[:k] {
				p.rank = q.seated
				q.seated++
				q.seat(w, p)
			}
			ws = ws[k:]
		}
		q.binding = q.binding || len(ws) > 0 && run.stock == 0
		held = append(held, q.unseated(ws, run, answer, received)...)
	}
	if len(held) == 0 {
		q.seatWaiting(received)
	}
	if len(held) == 0 && len(q.waiting) > 0 {
		q.gather(q.waiting[0].ns, received)
	}
	q.waiting = append(held, q.waiting...)
	if len(held) > 0 {
		q.refuseHopeless(b, r, received)
		if q.arrivals == b.upTo {
			q.urgentAt = time.Time{} // whom the batch left out is behind these, and waits as they do
		}
	}
	if d := q.turns(); r.contenders > 0 && len(held) == 0 && d > 0 {
		q.askAt = received.Add(d/2 + rand.N(d)) // who was served comes after the others
	}
	if unknown && len(held) > 0 {
		q.askAt = time.Time{} // they were asked for before their horizon was known
	}
	b.finish(nil)
}

// seat gives a waiter its place.
func (q *queue) seat(w *waiter, p place) {
	w.place = p
	switch {
	case w.state == gone:
		q.returns = append(q.returns, returned{place: p, ns: w.ns})
	case q.closed:
		q.returns = append(q.returns, returned{place: p, ns: w.ns})
		q.answer(w, outcome{err: q.error(0, ErrClosed)})
	default:
		w.state = placed
		if w.hold || p.ahead {
			q.hold(w)
		}
		q.answer(w, outcome{})
	}
}

// turnAfter is how long after its moment a place of this rank falls due, less than
// most.
// Timers of the same moment fire in any order; these fire in turn.
func turnAfter(rank int, most time.Duration) time.Duration {
	after := float64(rank) * float64(wakeUp)
	return time.Duration(after * float64(most) / (after + float64(most) + 1))
}

// unseated answers those of a run that got no place, and returns those who
// stay in the queue.
func (q *queue) unseated(ws []*waiter, run run, answer runReply, received time.Time) []*waiter {
	var held []*waiter
	for _, w := range ws {
		switch {
		case w.state == gone:
		case q.closed:
			q.answer(w, outcome{err: q.error(0, ErrClosed)})
		case answer.rest == restDenied:
			q.c.denials.Add(1)
			q.answer(w, outcome{denied: true, wait: answer.wait, member: answer.member})
		case answer.rest == restExceeds:
			q.answer(w, outcome{err: exceeds(q.members[answer.member].name, w.ns[answer.member], answer.rate)})
		default:
			w.state = queued
			held = append(held, w)
		}
	}
	if len(held) > 0 && q.askAt.IsZero() {
		q.askAt = q.whenNext(answer.wait, run, received)
	}
	return held
}

// whenNext is when to ask again for a turn that is wait ahead: when the horizon
// reaches it; or, if it was this process's share of the horizon that was used
// up, when half of its places have been used, or the turn is near enough to be
// anybody's. The jitter lets processes take turns.
func (q *queue) whenNext(wait time.Duration, run run, received time.Time) time.Time {
	horizon := q.horizon(run.waiters[0].ns)
	at := received.Add(wait - run.reach)
	if wait <= run.reach {
		at = received.Add(wait - run.near)
		ws := q.inTurn()
		if n := len(ws); n > 0 && ws[n/2].place.due.Before(at) {
			at = ws[n/2].place.due
		}
	}
	return later(at, received.Add(time.Millisecond)).Add(rand.N(max(horizon/16, q.turns())))
}

// turns is how long the limit takes to serve as many contenders as there are,
// where that is long: all of them asking together whenever the horizon moves
// would keep Redis from everything else. Zero for small fleets, and for those
// that it serves soon.
func (q *queue) turns() time.Duration {
	var d time.Duration
	if q.contenders < herd {
		return 0
	}
	for _, s := range q.config {
		d = max(d, perPermit(s, q.contenders))
	}
	if d < turnsFrom {
		return 0
	}
	return min(d, turnsTo)
}

// learn takes up what a reply says of the configuration. Places of an older
// one are asked for anew. (Within one epoch it is still the same: a pause that is
// over was taken out of it, say.)
func (q *queue) learn(r batchReply, asked time.Time, doubts uint64) {
	changed := false
	for i, s := range r.changed {
		if s != nil {
			changed = changed || q.config[i].epoch != 0 && q.config[i].epoch != s.epoch
			q.config[i] = *s
		}
	}
	q.heard(asked, doubts)
	if changed {
		q.replace()
	}
}

// heard takes up that a request was answered that was sent then, as of so many doubts.
func (q *queue) heard(asked time.Time, doubts uint64) {
	if doubts == q.doubts {
		q.heardAt = asked
	}
}

// refuse answers a batch that was not served, nor will be.
func (q *queue) refuse(b *batch, r batchReply) {
	err := errReply
	switch r.status {
	case statusMissing:
		err = ErrNotInitialized
	case statusBad:
		err = badField(r.field)
		q.config[r.member].seal, q.config[r.member].plain = "", false // what it was is known no more
	}
	for _, w := range b.flying() {
		q.answer(w, outcome{err: q.error(r.member, err)})
	}
	// Places of a limiter that is gone are of no use either.
	q.replace()
	b.finish(q.error(r.member, err))
}

// renew asks for a batch again, under another key: this was the latest batch of
// the queue, so somebody else has written what Redis knows as a later one.
func (q *queue) renew(b *batch) {
	q.replyKey = q.c.replyKey(q.members[0])
	q.keys[0] = q.replyKey
	q.putBack(b)
	q.returns = append(b.returns, q.returns...)
	q.releases = append(b.releases, q.releases...)
}

// expired asks for the permits of a batch again that Redis did not answer for so
// long that it no longer knows whether it has served it. What it may have had
// counts as used, and is not given back: that could be done twice. If it was sent
// only now, then Redis's clock was set, and it was not served.
func (q *queue) expired(b *batch, received time.Time) {
	q.putBack(b)
	if received.Sub(b.first) < leastServed/2 {
		q.returns = append(b.returns, q.returns...)
		q.releases = append(b.releases, q.releases...)
		return
	}
	b.finish(q.error(0, unknownWhether()))
}

// putBack has those of a batch ask again, ahead of the others.
func (q *queue) putBack(b *batch) {
	ws := b.flying()
	for _, w := range ws {
		if q.closed {
			q.answer(w, outcome{err: q.error(0, ErrClosed)})
		} else {
			w.state = queued
		}
	}
	if q.closed {
		return
	}
	q.front = append(ws, q.front...)
	if len(ws) > 0 {
		q.askAt = time.Time{}
	}
}
