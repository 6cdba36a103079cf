package tenants

import (
	"context"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

const (
	// callLasts bounds a call.
	callLasts = 3 * time.Second
	// farewell bounds the call in which a Client that is closed says that nobody waits in it any
	// more.
	farewell = 500 * time.Millisecond
)

// step calls f, and then the line's goroutine handles what has changed.
func (q *queue) step(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
	if q.running {
		select {
		case q.wake <- struct{}{}:
		default:
		}
		return
	}
	if _, busy := q.line.Next(); busy && !q.closed {
		q.running = true
		q.k.wg.Go(q.run)
	}
}

// run makes the line's calls until there are none to make.
func (q *queue) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		q.mu.Lock()
		at, busy := q.line.Next()
		if !busy || q.closed {
			q.end()
			q.mu.Unlock()
			return
		}
		now := q.k.Now()
		if at > now {
			q.mu.Unlock()
			timer.Reset(at.Sub(now))
			select {
			case <-q.wake:
			case <-timer.C:
			case <-q.k.ctx.Done():
			}
			continue
		}
		t := q.line.Ask(now)
		q.mu.Unlock()
		q.call(q.k.ctx, t, callLasts)
	}
}

// call makes a call, and does what its reply says.
func (q *queue) call(ctx context.Context, t *script.TenantCall, lasts time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	reply, sent, err := q.k.Call(ctx, script.Tenants, q.keys, t.Args()...)
	var decoded script.TenantReply
	var found bool
	if err == nil {
		decoded, found, err = script.DecodeTenants(reply)
	}
	q.mu.Lock()
	if err != nil {
		again := script.Transient(err)
		for _, w := range q.line.Failed(err, again) {
			a := line.Answer{Err: err}
			switch {
			case q.closed:
				a.Err = line.ErrClosed
			case again:
				a.Err = line.NoAnswer(err)
			}
			q.tell(w, a)
		}
		q.mu.Unlock()
		return
	}
	d := q.line.Answer(q.k.Now(), q.k.At(sent), &decoded, found)
	for _, w := range d.Deny {
		q.tell(w, line.Answer{Denied: true, Wait: d.Wait})
	}
	pass := make([]*Pending, len(d.Pass))
	for i, w := range d.Pass {
		pass[i] = q.of[w]
		delete(q.of, w)
	}
	waits := q.line.waiting > 0
	q.mu.Unlock()
	for _, t := range pass {
		t.next()
		close(t.came)
	}
	if waits {
		q.k.Listen()
	}
}

// tell ends a wait. The mutex is held.
func (q *queue) tell(w *Waiter, a line.Answer) {
	t := q.of[w]
	delete(q.of, w)
	t.Answer = a
	close(t.came)
}

// end ends the line's goroutine: nobody waits, or the Client is closed. The mutex is held.
func (q *queue) end() {
	q.running = false
	if !q.closed {
		return
	}
	for _, w := range q.line.Close() {
		q.tell(w, line.Answer{Err: line.ErrClosed})
	}
	if !q.line.told && len(q.line.owed) == 0 || q.line.trouble != nil {
		return
	}
	t := q.line.Ask(q.k.Now())
	q.k.wg.Go(func() { q.call(context.WithoutCancel(q.k.ctx), t, farewell) })
}
