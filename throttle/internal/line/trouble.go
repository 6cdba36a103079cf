package line

import (
	"context"
	"fmt"
	"time"
)

const (
	backoffFrom = 5 * time.Millisecond
	backoffTo   = 500 * time.Millisecond
	// tryPatience is how long TryAcquire waits for an answer from Redis. lastTry is how much
	// longer a request waits that asks once more when its time is over.
	tryPatience = 4 * time.Second
	lastTry     = 250 * time.Millisecond
	// stillAfter is how long a call must take at least for Redis to count as standing still.
	stillAfter = 20 * time.Millisecond
)

// Trouble is why the last call failed; nil if it did not fail.
func (l *Line) Trouble() error { return l.trouble }

// failed tells those who cannot wait that Redis is in trouble.
func (l *Line) failed(b *batch, err error, now Local) {
	l.trouble = err
	tell := func(ws []*Waiter) []*Waiter {
		var rest []*Waiter
		for _, w := range ws {
			switch {
			case l.closed && w.state != gone:
				l.answer(w, Answer{Err: ErrClosed})
			case w.now && w.state != gone:
				l.answer(w, Answer{Err: NoAnswer(err)})
			default:
				rest = append(rest, w)
				continue
			}
			w.state = gone // what the batch may still bring it is given back
		}
		return rest
	}
	l.front, l.waiting = tell(l.front), tell(l.waiting)
	for _, w := range l.byDue() {
		if w.now && w.state == unsure {
			l.giveBack(returned{grant: w.grant, ns: w.ns}, now)
			l.letGo(w)
			l.answer(w, Answer{Err: NoAnswer(err)})
		}
	}
	if b != nil {
		for _, ws := range b.waiters {
			tell(ws)
		}
	}
}

// backoff is how long to wait before the next attempt: longer each time, jittered.
func (l *Line) backoff(attempt int) time.Duration {
	d := min(backoffFrom<<min(attempt, 10), backoffTo)
	return d/2 + l.jitter(d/2)
}

// jitter is a random time shorter than d.
func (l *Line) jitter(d time.Duration) time.Duration {
	return time.Duration(l.c.Random.Int64N(int64(d)))
}

// Latest is when the caller of a waiter has waited long enough for an answer; zero if it
// waits however long that takes.
func (l *Line) Latest(w *Waiter) Local {
	switch {
	case w.now && w.until > w.since:
		return w.until.Add(lastTry)
	case w.now:
		return w.since.Add(tryPatience)
	}
	return w.until
}

// Unanswered is the error that says that the time of a request is over and Redis has not
// decided. It is nil if Redis has decided: it has seen the request and put it off, and others
// have got what became available since, unless Redis is in trouble now or stands still.
func (l *Line) Unanswered(w *Waiter, now Local) error {
	switch {
	case l.trouble != nil, !w.putOff, l.callSince != 0 && now.Sub(l.callSince) > max(stillAfter, 4*l.roundTrips.median()):
		return NoAnswer(l.trouble)
	}
	return nil
}

// NoAnswer is the error for whoever has no time to wait until Redis answers again.
func NoAnswer(trouble error) error {
	if trouble == nil {
		return fmt.Errorf("%w, waiting for Redis, which has not answered", context.DeadlineExceeded)
	}
	return fmt.Errorf("%w, waiting for Redis: %w", context.DeadlineExceeded, trouble)
}

// UnknownWhether is the error for a request that Redis has not answered for so long that it
// no longer knows of it.
func UnknownWhether() error {
	return fmt.Errorf("%w, waiting for Redis: it is not known whether it was done", context.DeadlineExceeded)
}

// Waiting is the error for a wait that ends with err while Redis is in trouble.
func Waiting(err, trouble error) error { return fmt.Errorf("%w, waiting for Redis: %w", err, trouble) }
