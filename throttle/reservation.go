package throttle

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Reservation is a place in a limiter or group, or the refusal of one. Whoever
// waits Delay by other means than Wait has used the permits, as far as the limit
// is concerned, and need do no more.
// It is for one goroutine, but Cancel may be called from any.
type Reservation struct {
	w   *waiter
	out outcome // the latest answer

	mu sync.Mutex
	q  *queue
}

// enter returns the queue, which the caller must leave. A queue in which nobody
// had come for any reservation may have been forgotten: its successor goes on.
func (r *Reservation) enter() *queue {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.q.enter() {
		r.q = r.q.c.enter(new(atomic.Pointer[queue]), r.q.members...)
	}
	return r.q
}

// last is the queue, whether or not it was forgotten.
func (r *Reservation) last() *queue {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.q
}

// OK reports whether a place is held. It is false when the turn comes too late;
// then nothing is reserved.
func (r *Reservation) OK() bool { return !r.out.denied }

// Delay is how long it is from now until the turn comes; if the place was
// refused, how long it would have been when it was.
func (r *Reservation) Delay() time.Duration {
	if r.out.denied {
		return r.out.wait
	}
	q := r.last()
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(time.Until(r.w.place.due), 0)
}

// Limiter is the name of the limiter that refused, or of the first of those
// in which a place is held.
func (r *Reservation) Limiter() string { return r.last().members[r.out.member].name }

// Wait waits until the turn comes. When it returns nil the permits may be used,
// now: a place that has grown stale since, or whose limit was changed, is
// exchanged for the next, ahead of later waiters, for as long as it takes. If
// ctx ends first the place is given back. The error is ErrExceedsDeadline if
// the next turn comes after ctx's deadline, or if nothing was reserved.
func (r *Reservation) Wait(ctx context.Context) error {
	if r.OK() {
		deadline, _ := ctx.Deadline()
		q := r.enter()
		defer q.leave()
		q.waitsUntil(r.w, deadline)
	}
	return r.wait(ctx)
}

func (r *Reservation) wait(ctx context.Context) error {
	q := r.enter()
	defer q.leave()
	q.c.waiting.Add(1)
	defer q.c.waiting.Add(-1)
	for r.OK() {
		var taken bool
		taken, r.out = q.redeem(ctx, r.w)
		if taken || r.out.err != nil {
			return r.out.err
		}
	}
	return tooLate(r.Limiter(), r.out.wait)
}

// Cancel gives the place back, so that the next in turn can have it, and waits
// up to a second until Redis knows. It does nothing once Wait has returned.
func (r *Reservation) Cancel() {
	q := r.enter()
	defer q.leave()
	q.abandon(r.w, cancelPatience)
}

// reserve asks for a place within maxWait.
func (q *queue) reserve(ctx context.Context, ns []int64, maxWait time.Duration) (*Reservation, error) {
	defer q.leave()
	if err := ctx.Err(); err != nil {
		return nil, q.interrupted(ctx)
	}
	maxWait = max(maxWait, 0)
	now := time.Now()
	w := &waiter{ns: ns, since: now, until: now.Add(maxWait), now: maxWait == 0, hold: true, out: make(chan outcome, 1)}
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(w.until) {
		w.until = deadline
	}
	if q.seatFromStock(w) {
		return &Reservation{q: q, w: w}, nil
	}
	q.c.waiting.Add(1)
	defer q.c.waiting.Add(-1)
	if err := q.enqueue(ctx, w); err != nil {
		return nil, err
	}
	out := q.await(ctx, w)
	if out.err != nil {
		return nil, out.err
	}
	return &Reservation{q: q, w: w, out: out}, nil
}

// tryAcquire waits at most timeout, and not at all for what comes later.
func (q *queue) tryAcquire(ctx context.Context, ns []int64, timeout time.Duration) (bool, error) {
	r, err := q.reserve(ctx, ns, timeout)
	if err != nil || !r.OK() {
		return false, err
	}
	err = r.wait(ctx)
	if !r.OK() {
		return false, nil
	}
	return err == nil, err
}
