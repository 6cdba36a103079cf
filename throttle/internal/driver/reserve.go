package driver

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/arrived"
	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
)

// Ticket is a grant, or a denial. It is for one goroutine, except Cancel.
type Ticket struct {
	w      *line.Waiter
	ns     []int64
	answer line.Answer // the latest
	taken  []int64     // permits of each member once they are handed out, less those released

	mu sync.Mutex
	q  *queue
}

// Reserve asks for permits that are due within maxWait. Without any wait, it does not wait
// out trouble.
func (e *Entry) Reserve(ctx context.Context, ns []int64, maxWait time.Duration) (*Ticket, error) {
	return e.reserve(ctx, ns, maxWait, false)
}

// reserve is Reserve. If its caller awaits the permits, they may get an earlier time.
func (e *Entry) reserve(ctx context.Context, ns []int64, maxWait time.Duration, awaits bool) (*Ticket, error) {
	q := e.enter()
	defer q.leave()
	if ctx.Err() != nil {
		return nil, q.interrupted(ctx)
	}
	now := q.c.now()
	w := line.NewWaiter(ns, now, until(ctx, now, maxWait), true, maxWait <= 0)
	if awaits {
		w.Await()
	}
	if t := arrived.TurnOf(ctx); t.Among != "" {
		w.Among(t.Among, t.Since)
	}
	q.c.Waiting.Add(1)
	defer q.c.Waiting.Add(-1)
	q.mu.Lock()
	q.arrive(ctx, w, true)
	a := q.await(ctx, w)
	if a.Err != nil {
		return nil, q.failed(a)
	}
	return &Ticket{q: q, w: w, ns: ns, answer: a}, nil
}

// Try waits at most timeout for permits. It does not wait at all if they are due later.
func (e *Entry) Try(ctx context.Context, ns []int64, timeout time.Duration) (bool, error) {
	t, err := e.reserve(ctx, ns, timeout, true)
	if err != nil || !t.OK() {
		return false, err
	}
	err = t.wait(ctx)
	if !t.OK() {
		return false, nil
	}
	return err == nil, err
}

// enter returns the queue, which the caller must leave. A queue may have been forgotten if
// nobody came for any of its reservations. Then its successor takes over.
func (t *Ticket) enter() *queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.q.enter() {
		t.q = t.q.c.Entry(t.q.members...).enter()
	}
	return t.q
}

// last returns the queue, even if it was forgotten.
func (t *Ticket) last() *queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.q
}

// OK reports whether the Ticket is a grant.
func (t *Ticket) OK() bool { return !t.answer.Denied }

// stands reports whether the permits are reserved, as far as its caller has heard.
func (t *Ticket) stands() bool { return t.OK() && t.answer.Err == nil }

// Delay is how long it is from now until the permits are due. If they were denied, it is how
// long it would have been at that time.
func (t *Ticket) Delay() time.Duration {
	if t.answer.Denied {
		return t.answer.Wait
	}
	q := t.last()
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(q.line.Due(t.w).Sub(q.c.now()), 0)
}

// Span is the shortest time for which a permit of any member counts.
func (t *Ticket) Span() time.Duration {
	q := t.last()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.line.Span()
}

// Limiter is the name of the limiter that denied the permits, or of the first limiter if they
// were granted.
func (t *Ticket) Limiter() string { return t.last().members[t.answer.Member].Name }

// Wait waits until the permits are due and takes them, unless that is done. If ctx ends first, they are given
// back.
func (t *Ticket) Wait(ctx context.Context) error {
	if t.taken != nil {
		return nil
	}
	if t.OK() {
		q := t.enter()
		defer q.leave()
		q.mu.Lock()
		q.step(line.Event{Kind: line.Extend, Waiter: t.w, Until: until(ctx, q.c.now(), endless)})
		q.mu.Unlock()
	}
	return t.wait(ctx)
}

// Near waits until the permits are due within early, and does not take them. If ctx ends first, they are given back.
func (t *Ticket) Near(ctx context.Context, early time.Duration) error {
	q := t.enter()
	defer q.leave()
	q.c.Waiting.Add(1)
	defer q.c.Waiting.Add(-1)
	if t.taken == nil && t.stands() {
		t.answer = q.near(ctx, t.w, max(early, 1))
	}
	if t.stands() {
		return nil
	}
	return q.failed(t.answer)
}

func (t *Ticket) wait(ctx context.Context) error {
	q := t.enter()
	defer q.leave()
	q.c.Waiting.Add(1)
	defer q.c.Waiting.Add(-1)
	return t.redeem(ctx, q)
}

func (t *Ticket) redeem(ctx context.Context, q *queue) error {
	for t.stands() {
		var taken bool
		taken, t.answer = q.redeem(ctx, t.w)
		if taken {
			t.taken = slices.Clone(t.ns)
			return nil
		}
	}
	return q.failed(t.answer)
}

// Cancel gives the permits back, so that the next in line can have them, and waits up to a
// second until Redis knows. It does nothing once Wait has returned. It reports whether there
// was something to give back, or to stop asking for.
func (t *Ticket) Cancel() bool {
	q := t.enter()
	defer q.leave()
	return q.abandon(t.w, cancelPatience)
}

// Names returns the names of the members of its line.
func (t *Ticket) Names() []string {
	members := t.last().members
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.Name
	}
	return names
}

// Released takes permits of each member off those that were handed out, and reports whether
// there were so many.
func (t *Ticket) Released(ns []int64) bool {
	for i, n := range ns {
		if t.taken == nil || n > t.taken[i] {
			return false
		}
	}
	for i, n := range ns {
		t.taken[i] -= n
	}
	return true
}

// Release gives back permits of each member that Released took off. It reports whether they
// still counted, as far as this process knows.
func (t *Ticket) Release(ctx context.Context, ns []int64) (counted bool, err error) {
	q := t.enter()
	defer q.leave()
	q.mu.Lock()
	counted = q.line.Counts(t.w, q.c.now())
	q.mu.Unlock()
	return counted, q.release(ctx, &line.Release{Ns: ns, Of: t.w, Done: make(chan line.Answer, 1)})
}
