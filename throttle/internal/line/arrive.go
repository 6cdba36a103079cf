package line

import (
	"context"
	"slices"
	"time"
)

// ServesFor bounds how long a call takes that the caller of a request makes itself. The end
// of its context may go unnoticed for that time.
const ServesFor = 20 * time.Millisecond

// arrive puts a waiter at the end of the line, unless permits for it are at hand.
func (l *Line) arrive(w *Waiter, serves bool, now Local) {
	if l.closed {
		l.answer(w, Answer{Err: ErrClosed})
		return
	}
	if n, _ := l.Lend(now); n > 0 && IsOne(w.ns) {
		l.stock.left--
		l.assign(w, l.stock.grant, now)
		return
	}
	if l.mayNeedStock(w.ns) {
		l.endStock(now)
	}
	l.arrivals++
	w.no = l.arrivals
	if l.comesBack(w, now) {
		l.gathering.joined()
		return
	}
	l.waiting = append(l.waiting, w)
	at := now
	if l.patient(w, now) && l.taken(w.ns, now) > 4*gatherFor {
		at = l.gatherUntil(w.ns, now)
	}
	if w.until != 0 {
		l.gathering.limit(w.until, now)
	}
	l.gathering.joined()
	if len(l.waiting) == 1 {
		l.gather(w.ns, now)
	}
	if w.until != 0 && (l.urgentAt == 0 || at < l.urgentAt) {
		l.urgentAt = at // its answer may be no, and it wants to know soon
	}
	if len(l.waiting) == 1 && l.askAt < at && at != now {
		l.askAt = at
	}
	l.out.Poke = w.now && l.trouble != nil
	switch {
	case l.calling:
	case now < l.nextAsk() && len(l.returns) == 0:
		l.arm(now)
	case serves && l.mayServe(w, now):
		l.calling = true
		l.call(l.ask(l.nextBatch(now), now, now), now)
	default:
		l.kick()
	}
}

// patient reports whether a request will be served by its deadline, as far as is known.
func (l *Line) patient(w *Waiter, now Local) bool {
	return w.until == 0 || w.until.Sub(max(now, l.fullUntil)) > l.horizon(w.ns)
}

// mayServe reports whether the caller of a request may make the call for it: Redis has
// answered before, and answers soon; and if Redis does not answer this time, the caller has
// time left for whatever else it waits for.
func (l *Line) mayServe(w *Waiter, now Local) bool {
	return l.Around.Answered && l.trouble == nil && l.roundTrips.n > 0 && l.roundTrips.median() < ServesFor/4 &&
		(w.until == 0 || w.now || w.until.Sub(now) > ServesFor)
}

// leave takes out a waiter whose caller leaves, and gives its grant back.
func (l *Line) leave(w *Waiter, now Local) {
	switch w.state {
	case queued:
		first := l.head() == w
		l.front = without(l.front, w)
		l.waiting = without(l.waiting, w)
		if first && w.putOff {
			l.askFor(l.head(), w.ns)
		}
	case granted, unsure:
		if l.closed {
			break // Close has given back what it could
		}
		l.giveBack(returned{grant: w.grant, ns: w.ns, left: w}, now)
		l.letGo(w)
		l.giveBackHeld()
		l.kick()
	}
	w.left = true
	if w.state != done {
		l.answer(w, Answer{Err: context.Canceled}) // for a Wait that Cancel cuts short
		w.state = gone
	}
}

// head is the waiter that asks first, or nil.
func (l *Line) head() *Waiter {
	switch {
	case len(l.front) > 0:
		return l.front[0]
	case len(l.waiting) > 0:
		return l.waiting[0]
	}
	return nil
}

// askFor does not wait until one that left would have asked again, if the next wants less of something, or whoever comes next
// may.
func (l *Line) askFor(next *Waiter, left []int64) {
	if next == nil {
		l.askAt = 0
		return
	}
	for i, n := range next.ns {
		if n < left[i] {
			l.askAt = 0
			l.kick()
			return
		}
	}
}

// Open reports whether a waiter's permits were neither taken nor refused, nor given back.
func (l *Line) Open(w *Waiter) bool { return w.state < done && !l.closed }

// Gives reports whether a waiter has a grant to give back if its caller leaves now.
func (l *Line) Gives(w *Waiter) bool { return (w.state == granted || w.state == unsure) && !l.closed }

func without(ws []*Waiter, w *Waiter) []*Waiter {
	if i := slices.Index(ws, w); i >= 0 {
		return slices.Delete(ws, i, i+1)
	}
	return ws
}

// give has permits given back that were handed out and not used.
func (l *Line) give(r *Release) {
	if l.closed {
		l.end(r, Answer{Err: ErrClosed})
		return
	}
	if r.Of != nil {
		l.returns = append(l.returns, returned{grant: r.Of.grant, ns: r.Ns, release: r})
	} else {
		l.releases = append(l.releases, r)
	}
	l.kick()
}

// Counts reports whether the permits that a waiter was handed still count, as far as the line
// knows.
func (l *Line) Counts(w *Waiter, now Local) bool {
	for _, s := range l.config {
		if !countsIn(s, w.grant.due, now) {
			return false
		}
	}
	return true
}

// doubt has the configuration checked before anybody acts on it again.
func (l *Line) doubt() {
	l.heardAt = 0
	l.doubts++
	if len(l.holders)+len(l.waiting)+len(l.front) > 0 {
		l.askAt = 0
		l.kick()
	}
}

// close ends all waits and gives their grants back.
func (l *Line) close(now Local) {
	if l.closed {
		return
	}
	l.closed = true
	for _, w := range slices.Clone(l.holders) {
		l.giveBack(returned{grant: w.grant, ns: w.ns}, now)
		l.letGo(w) // what a call under way says about the configuration no longer concerns w
		l.answer(w, Answer{Err: ErrClosed})
	}
	for _, w := range slices.Concat(l.front, l.waiting) {
		l.answer(w, Answer{Err: ErrClosed})
	}
	l.front, l.waiting = nil, nil
	l.giveBackHeld()
	l.endStock(now)
	switch {
	case l.calling:
	case len(l.returns)+len(l.releases) > 0:
		l.calling, l.out.Start = true, true
	default:
		l.out.Stopped = true
	}
}

// answer tells a waiter the result of its request. After an error or a denial, the line is
// done with the waiter.
func (l *Line) answer(w *Waiter, a Answer) {
	if a.Err != nil || a.Denied {
		w.state = done
	}
	l.out.Answers = append(l.out.Answers, Told{w, a})
}

// end tells whoever gave permits back what the result was.
func (l *Line) end(r *Release, a Answer) {
	l.out.Served, l.out.Ends = append(l.out.Served, r), append(l.out.Ends, a)
}

// exceeds is the answer to a request for more permits than the rate.
func exceeds(member int, n, rate int64) Answer {
	return Answer{Err: ErrExceedsRate, Member: member, N: n, Rate: rate}
}
