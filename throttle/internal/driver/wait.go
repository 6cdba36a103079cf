package driver

import (
	"context"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/arrived"
	"github.com/jobthrottle/jobthrottle/internal/ended"
	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
)

const (
	// cancelPatience is how long Cancel waits until its permits are known to be free.
	// leavePatience is the same for a wait whose context ended.
	cancelPatience = time.Second
	leavePatience  = line.ServesFor
)

// Acquire waits for permits, at the latest until ctx ends.
func (e *Entry) Acquire(ctx context.Context, ns []int64) error {
	one := line.IsOne(ns)
	if one && ctx.Err() == nil && e.draw() {
		return nil
	}
	q := e.enter()
	defer q.leave()
	if ctx.Err() != nil {
		return q.interrupted(ctx)
	}
	q.mu.Lock()
	if one && q.draw() { // permits that came while others held the mutex
		q.mu.Unlock()
		return nil
	}
	now := q.c.now()
	latest := until(ctx, now, endless)
	w := line.NewWaiter(ns, now, latest, false, false)
	q.c.Waiting.Add(1)
	defer q.c.Waiting.Add(-1)
	q.arrive(ctx, w, latest != 0)
	a := q.await(ctx, w)
	for a.Err == nil && !a.Denied {
		var taken bool
		if taken, a = q.redeem(ctx, w); taken {
			return nil
		}
	}
	return q.failed(a)
}

// draw takes one permit of each member, if the line has lent any.
func (e *Entry) draw() bool {
	q := e.last.Load()
	return q != nil && q.draw()
}

func (q *queue) draw() bool {
	if !q.stock.draw(q.c.now()) {
		return false
	}
	q.c.Grants.Add(1)
	return true
}

// arrive puts a waiter at the end of the line, and makes the call for it if nobody else does.
// The caller holds the mutex, and arrive gives it up.
func (q *queue) arrive(ctx context.Context, w *line.Waiter, timed bool) {
	serves := q.c.heeds || ctx.Done() == nil && !timed // else nothing could end its wait for the answer
	call := q.step(line.Event{Kind: line.Arrive, Waiter: w, Serves: serves}).Call
	if call != nil {
		q.c.wg.Add(1)
	}
	q.mu.Unlock()
	arrived.Tell(ctx)
	if call == nil {
		return
	}
	served := false
	defer func() {
		if !served { // a hook of the Redis client panicked: nobody waits any more
			q.abandon(w, 0)
		}
	}()
	q.serve(ctx, call)
	served = true
}

// await waits for the answer to a request. A request that is useful only until some time, and
// has no answer by then, is over.
func (q *queue) await(ctx context.Context, w *line.Waiter) line.Answer {
	select { // most answers come soon, and need no timer
	case a := <-w.Out:
		return a
	default:
	}
	q.mu.Lock()
	latest := q.line.Latest(w)
	q.mu.Unlock()
	bounded := ctx
	if latest != 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, latest.Sub(q.c.now()))
		defer cancel()
	}
	select {
	case a := <-w.Out:
		return a
	case <-bounded.Done():
	}
	if ctx.Err() != nil {
		q.abandon(w, leavePatience)
		return line.Answer{Err: q.ended(ctx)}
	}
	q.mu.Lock()
	err := q.line.Unanswered(w, q.c.now())
	q.mu.Unlock()
	q.abandon(w, leavePatience)
	if err != nil {
		return line.Answer{Err: err}
	}
	q.c.Denials.Add(1)
	return line.Answer{Denied: true}
}

// redeem waits until the grant of w is due and takes the permits. If that fails, it returns
// the next answer, which may be another grant.
func (q *queue) redeem(ctx context.Context, w *line.Waiter) (taken bool, a line.Answer) {
	for {
		q.mu.Lock()
		out := q.step(line.Event{Kind: line.Due, Waiter: w})
		taken, latest, n, late, d, early := out.Taken, out.Latest, out.Grants, out.Late, out.Sleep, out.Early
		q.mu.Unlock()
		if taken && (latest == 0 || q.c.now() <= latest) {
			q.c.Grants.Add(n)
			q.c.Late.Add(late)
			return true, line.Answer{}
		}
		if taken { // the mutex wakes another goroutine, which may run first
			q.mu.Lock()
			q.step(line.Event{Kind: line.Missed, Waiter: w})
			q.mu.Unlock()
			return false, q.await(ctx, w)
		}
		if d <= 0 {
			return false, q.await(ctx, w)
		}
		due := time.Now().Add(d)
		if d <= early {
			yieldUntil(due)
			continue
		}
		t := time.NewTimer(d - early)
		defer t.Stop()
		select {
		case <-t.C:
			q.c.punctual.fired(time.Since(due) + early)
			yieldUntil(due)
		case a := <-w.Out: // asked for again
			return false, a
		case <-ctx.Done():
			q.abandon(w, leavePatience)
			return false, line.Answer{Err: q.ended(ctx)}
		}
	}
}

// near waits until the permits of w are due within early, and does not take them. What it returns is an error or a denial,
// or empty.
func (q *queue) near(ctx context.Context, w *line.Waiter, early time.Duration) (a line.Answer) {
	for a.Err == nil && !a.Denied {
		q.mu.Lock()
		out := q.step(line.Event{Kind: line.Due, Waiter: w, Within: early})
		near, d := out.Near, out.Sleep
		q.mu.Unlock()
		if near {
			break
		}
		if d <= 0 {
			a = q.await(ctx, w)
			continue
		}
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case a = <-w.Out: // asked for again
		case <-ctx.Done():
			q.abandon(w, leavePatience)
			a = line.Answer{Err: q.ended(ctx)}
		}
		t.Stop()
	}
	return a
}

// abandon takes out a waiter whose caller leaves. If the waiter has a grant, abandon gives it
// back, and waits up to patience until Redis has it. It reports whether the request was open:
// the caller had neither taken permits nor heard that it gets none.
func (q *queue) abandon(w *line.Waiter, patience time.Duration) bool {
	q.mu.Lock()
	open := q.line.Open(w)
	var gave chan struct{}
	if q.line.Gives(w) {
		gave = make(chan struct{})
		if q.leaving == nil {
			q.leaving = make(map[*line.Waiter]chan struct{})
		}
		q.leaving[w] = gave
	}
	q.step(line.Event{Kind: line.Leave, Waiter: w})
	q.mu.Unlock()
	if gave == nil {
		return open
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-gave:
	case <-t.C:
	}
	return open
}

// interrupted is the error of a wait that ended with its context. It names the limiter.
func (q *queue) interrupted(ctx context.Context) error { return q.fail(0, q.ended(ctx)) }

// ended is why a wait ended with its context.
func (q *queue) ended(ctx context.Context) error {
	err := ended.By(ctx)
	q.mu.Lock()
	trouble := q.line.Trouble()
	q.mu.Unlock()
	if trouble != nil {
		err = line.Waiting(err, trouble)
	}
	return err
}

// Release gives back permits of each member that were handed out.
func (e *Entry) Release(ctx context.Context, ns []int64) error {
	q := e.enter()
	defer q.leave()
	return q.release(ctx, &line.Release{Ns: ns, Done: make(chan line.Answer, 1)})
}

func (q *queue) release(ctx context.Context, r *line.Release) error {
	q.mu.Lock()
	q.step(line.Event{Kind: line.Give, Release: r})
	q.mu.Unlock()
	select {
	case a := <-r.Done:
		if a.Err == nil {
			return nil
		}
		return q.failed(a)
	case <-ctx.Done():
		return q.interrupted(ctx)
	}
}
