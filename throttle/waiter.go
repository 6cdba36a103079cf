package throttle

import (
	"context"
	"slices"
	"time"
)

const (
	// cancelPatience is how long Reservation.Cancel waits until its place is
	// known to be free; abandonPatience the same for a wait whose context ended.
	cancelPatience  = time.Second
	abandonPatience = 20 * time.Millisecond
)

type waiterState int

const (
	queued   waiterState = iota // in front or waiting
	flying                      // in the call under way
	placed                      // has a place
	checking                    // its place is due, and the configuration must be confirmed
	done                        // the permits are the caller's, or the answer was no
	gone                        // its caller has left
)

// waiter is one request. Its fields are guarded by the queue's mutex, but for
// those that never change.
type waiter struct {
	ns    []int64
	no    uint64       // of its arrival
	since time.Time    // when it asked
	until time.Time    // the latest turn that is of use; zero: any
	now   bool         // has no time to wait out trouble
	hold  bool         // a Reservation: its caller may come back late
	stale int          // how many places of it came too late to be of use
	out   chan outcome // one answer at a time

	state   waiterState
	place   place
	awaited bool // its caller waits for its turn
}

// place is a grant: its entry in the log, and when its turn comes here.
type place struct {
	at       int64 // us of Redis's clock: where its entry is
	epochs   []int64
	ahead    bool      // it was not due when it was granted
	slow     bool      // it was, in a call that took longer than half the guard
	rank     int       // its turn among those of the same moment
	earliest time.Time // Redis's clock does not show at before,
	due      time.Time // and shows it by then: never early

	looked    bool      // its time was looked at again
	confirmed time.Time // when the configuration was last known to be its own at its turn
}

// confirm takes up that, as of a request sent then, the configuration is still
// the one of the place: it stands then, whatever changes, if it is due within fresh.
func (p *place) confirm(sent, received time.Time, fresh time.Duration) {
	if p.due.Sub(sent) <= fresh {
		p.confirmed = received
	}
}

// outcome is an answer to a waiter: a place, a denial or an error.
type outcome struct {
	err    error
	denied bool
	wait   time.Duration // until the turn that was denied
	member int           // that denied
}

// acquire waits its turn, at the latest until ctx ends.
func (q *queue) acquire(ctx context.Context, ns []int64) error {
	defer q.leave()
	if err := ctx.Err(); err != nil {
		return q.interrupted(ctx)
	}
	if q.fromStock(ns) {
		return nil
	}
	w := &waiter{ns: ns, since: time.Now(), out: make(chan outcome, 1)}
	if deadline, ok := ctx.Deadline(); ok {
		w.until = deadline
	}
	q.c.waiting.Add(1)
	defer q.c.waiting.Add(-1)
	if err := q.enqueue(ctx, w); err != nil {
		return err
	}
	out := q.await(ctx, w)
	for out.err == nil && !out.denied {
		var taken bool
		if taken, out = q.redeem(ctx, w); taken {
			return nil
		}
	}
	if out.denied {
		return tooLate(q.members[out.member].name, out.wait)
	}
	return out.err
}

// await waits for the answer to a request. A request with a latest turn that
// has no answer by then is over.
func (q *queue) await(ctx context.Context, w *waiter) outcome {
	select { // most answers come soon: do without a timer
	case out := <-w.out:
		return out
	default:
	}
	q.mu.Lock()
	until, timed := w.until, !w.until.IsZero()
	switch {
	case w.now && until.After(w.since):
		until = until.Add(lastTry)
	case w.now:
		until = w.since.Add(tryPatience)
	}
	q.mu.Unlock()
	var late <-chan time.Time
	if timed {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		late = t.C
	}
	select {
	case out := <-w.out:
		return out
	case <-ctx.Done():
		q.abandon(w, abandonPatience)
		return outcome{err: q.interrupted(ctx)}
	case <-late:
		q.mu.Lock()
		err := q.unanswered(time.Now())
		q.mu.Unlock()
		q.abandon(w, abandonPatience)
		if err != nil {
			return outcome{err: err}
		}
		q.c.denials.Add(1)
		return outcome{denied: true}
	}
}

// redeem waits until the place of w is due and takes the permits. If that is
// not to be, it returns the next answer, which may be another place.
func (q *queue) redeem(ctx context.Context, w *waiter) (bool, outcome) {
	for {
		taken, d, early := q.take(w)
		if taken {
			return true, outcome{}
		}
		if d <= 0 {
			return false, q.await(ctx, w)
		}
		due := time.Now().Add(d)
		t := time.NewTimer(d - early)
		defer t.Stop()
		select {
		case <-t.C:
			if d > early {
				q.c.punctual.fired(time.Since(due) + early)
			}
			yieldUntil(due)
		case out := <-w.out: // asked for anew
			return false, out
		case <-ctx.Done():
			q.abandon(w, abandonPatience)
			return false, outcome{err: q.interrupted(ctx)}
		}
	}
}

// untilDue is how long to sleep before the place of w is due. Replies that came
// since may tell more exactly when that is: a place granted in a slow round
// trip is looked at again at the earliest moment it can be. The timer is to fire
// early by as much as timers are late, where that matters.
func (q *queue) untilDue(w *waiter, now time.Time) (d, early time.Duration) {
	if !w.place.ahead {
		return 0, 0
	}
	half := q.halfGuard()
	w.place.earliest, w.place.due = q.clock.at(w.place.at)
	if half > 0 {
		early = q.c.punctual.early(half)
	}
	if d := w.place.earliest.Sub(now); d > 0 && w.place.due.Sub(w.place.earliest) > half/2 {
		return d, early
	}
	return w.place.due.Add(turnAfter(w.place.rank, half/8)).Sub(now), early
}

// take hands out the permits of a place that is due, if they are fresh and the
// configuration is known to be that of the place. If not, an answer follows; or,
// if it is early for the place that w has by now, it says by how much.
func (q *queue) take(w *waiter) (taken bool, d, early time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.awaited = true
	if w.state != placed {
		return false, 0, 0 // asked for anew meanwhile, or closed
	}
	if q.closed {
		q.letGo(w)
		q.answer(w, outcome{err: q.error(0, ErrClosed)})
		return false, 0, 0
	}
	now := time.Now()
	if d, early := q.untilDue(w, now); d > 0 {
		return false, d, early
	}
	if !q.current(w.place) { // it changed while nobody looked
		q.exchange(w)
		return false, 0, 0
	}
	if now.Sub(q.heardAt) >= q.fresh() && now.Sub(w.place.confirmed) >= freshFor {
		q.look(w)
		return false, 0, 0
	}
	half := q.halfGuard()
	if half > 0 {
		w.place.earliest, w.place.due = q.clock.at(w.place.at)
	}
	if half > 0 && now.Sub(w.place.earliest) > half {
		overdue := now.Sub(w.place.due) > half // wherever in between its turn was
		far := q.maybeFresh(w, half, now)
		if !w.place.looked && !overdue && !far {
			// A slow reply, the first over a new connection say, leaves open when its
			// turn was. A look tells, and it may be fresh yet; an exchange would
			// cost it its turn.
			w.place.looked = true
			q.look(w)
			return false, 0, 0
		}
		// One of a slow call may be used if it is not much older: to exchange it could
		// cost an interval, for the places after it are taken by now.
		passes := w.place.slow && now.Sub(w.place.earliest) <= half*3/2
		if !passes && (overdue || !far || q.clock.uncertainty() <= half) {
			q.c.stale.Add(1)
			w.stale++
			q.exchange(w)
			return false, 0, 0
		}
		q.c.late.Add(1)
	}
	w.state = done
	q.letGo(w)
	if w.place.ahead {
		q.gathering.handed(1, now)
	}
	q.handedOut(w.ns, now)
	return true, 0, 0
}

// look has the configuration looked at before w goes on.
func (q *queue) look(w *waiter) {
	w.state = checking
	q.hold(w)
	q.kick()
}

// exchange gives a place back and asks for another, in one call.
func (q *queue) exchange(w *waiter) {
	q.returns = append(q.returns, returned{place: w.place, ns: w.ns, by: w})
	q.again(w)
	q.kick()
}

// again puts a waiter whose place is of no use any more ahead of the others.
func (q *queue) again(w *waiter) {
	w.state = queued
	w.now = w.now || !w.until.IsZero() && !time.Now().Before(w.until)
	q.letGo(w)
	q.front = append(q.front, w)
}

// answer gives a waiter what became of its request. Only a place leaves it in
// the queue's hands. An answer that was not read yet is out of date.
func (q *queue) answer(w *waiter, out outcome) {
	if out.err != nil || out.denied {
		w.state = done
	}
	select {
	case <-w.out:
	default:
	}
	w.out <- out
}

// waitsUntil sets the latest turn that is of use to a request.
func (q *queue) waitsUntil(w *waiter, deadline time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.until, w.now = deadline, false
}

// abandon takes a waiter out whose caller leaves. A place is given back, and
// abandon waits up to patience until Redis has it.
func (q *queue) abandon(w *waiter, patience time.Duration) {
	q.mu.Lock()
	var gave chan struct{}
	switch w.state {
	case queued:
		q.front = without(q.front, w)
		q.waiting = without(q.waiting, w)
	case placed, checking:
		if q.closed {
			break // Close has given back what it could
		}
		gave = make(chan struct{})
		q.returns = append(q.returns, returned{place: w.place, ns: w.ns, done: gave})
		q.letGo(w)
		q.kick()
	}
	if w.state != done {
		q.answer(w, outcome{err: q.error(0, context.Canceled)}) // for a Wait that Cancel cuts short
		w.state = gone
	}
	q.mu.Unlock()
	if gave == nil {
		return
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-gave:
	case <-t.C:
	}
}

func without(ws []*waiter, w *waiter) []*waiter {
	if i := slices.Index(ws, w); i >= 0 {
		return slices.Delete(ws, i, i+1)
	}
	return ws
}
