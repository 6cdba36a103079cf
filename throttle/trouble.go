package throttle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	backoffFrom = 5 * time.Millisecond
	backoffTo   = 500 * time.Millisecond
	// tryPatience is how long TryAcquire waits for an answer of Redis, lastTry how
	// long a request does that asks once more when its time is over.
	tryPatience = 4 * time.Second
	lastTry     = 250 * time.Millisecond
	// stillAfter is how long a call takes at the least for Redis to stand still.
	stillAfter = 20 * time.Millisecond
)

// failed tells those who cannot wait that Redis is in trouble.
func (q *queue) failed(b *batch, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.trouble = err
	tell := func(ws []*waiter) []*waiter {
		var rest []*waiter
		for _, w := range ws {
			switch {
			case q.closed && w.state != gone:
				q.answer(w, outcome{err: q.error(0, ErrClosed)})
			case w.now && w.state != gone:
				q.answer(w, outcome{err: q.error(0, noAnswer(err))})
			default:
				rest = append(rest, w)
				continue
			}
			w.state = gone // what the batch may yet bring it is given back
		}
		return rest
	}
	q.front, q.waiting = tell(q.front), tell(q.waiting)
	for w := range q.placed {
		if w.now && w.state == checking {
			q.returns = append(q.returns, returned{place: w.place, ns: w.ns})
			q.letGo(w)
			q.answer(w, outcome{err: q.error(0, noAnswer(err))})
		}
	}
	if b != nil {
		for _, r := range b.runs {
			tell(r.waiters)
		}
	}
}

// backoff waits before the next attempt: longer each time, jittered, and not
// at all when somebody who cannot wait asks.
func (q *queue) backoff(attempt int) {
	d := min(backoffFrom<<min(attempt, 10), backoffTo)
	ctx, cancel := context.WithTimeout(q.c.ctx, d/2+rand.N(d/2))
	defer cancel()
	select {
	case <-ctx.Done():
	case <-q.poke:
	}
}

// interrupted says that a wait ended with its context.
func (q *queue) interrupted(ctx context.Context) error {
	err := context.Cause(ctx)
	q.mu.Lock()
	trouble := q.trouble
	q.mu.Unlock()
	if trouble != nil {
		err = fmt.Errorf("%w, waiting for Redis: %w", err, trouble)
	}
	return q.error(0, err)
}

// unanswered says that the time of a request is over and that Redis has not
// decided: it is in trouble, or stands still. Nil if it would have had an answer.
func (q *queue) unanswered(now time.Time) error {
	if q.trouble != nil {
		return q.error(0, noAnswer(q.trouble))
	}
	since := q.callingSince.Load()
	if since == 0 || now.Sub(time.Unix(0, since)) <= max(stillAfter, 4*q.roundTrips.median()) {
		return nil
	}
	return q.error(0, noAnswer(nil))
}

// noAnswer is the error of whoever has no time to wait out that Redis does not answer.
func noAnswer(trouble error) error {
	if trouble == nil {
		return fmt.Errorf("%w, waiting for Redis, which does not answer", context.DeadlineExceeded)
	}
	return fmt.Errorf("%w, waiting for Redis: %w", context.DeadlineExceeded, trouble)
}
