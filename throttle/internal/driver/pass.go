package driver

import (
	"context"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
)

// Pass is a request that joins the line only when it is told to (Ask). It is for one
// goroutine, except Ask.
type Pass struct {
	q      *queue
	ns     []int64
	until  line.Local
	hold   bool // its caller may come back late for its permits
	atOnce bool // it wants an answer now
	w      *line.Waiter
}

// Pass returns a request for ns, within wait, or for any time if wait is negative. The caller
// must Leave it.
func (e *Entry) Pass(ctx context.Context, ns []int64, wait time.Duration, hold bool) *Pass {
	p := &Pass{q: e.enter(), ns: ns, hold: hold, atOnce: wait == 0}
	if wait < 0 {
		wait = endless
	}
	p.until = until(ctx, p.q.c.now(), wait)
	p.q.c.Waiting.Add(1)
	return p
}

// Leave ends the Pass. A Ticket outlives it.
func (p *Pass) Leave() {
	p.q.c.Waiting.Add(-1)
	p.q.leave()
}

// Until is the latest time at which its permits can be due; zero: any.
func (p *Pass) Until() line.Local { return p.until }

// Ask puts it at the end of the line. It does not wait.
func (p *Pass) Ask() {
	q := p.q
	q.mu.Lock()
	defer q.mu.Unlock()
	now, until := q.c.now(), p.until
	if p.atOnce {
		until = max(until, now)
	}
	p.w = line.NewWaiter(p.ns, now, until, p.hold, p.atOnce)
	q.step(line.Event{Kind: line.Arrive, Waiter: p.w})
}

// Await waits, once the request is in line, for a grant or a denial.
func (p *Pass) Await(ctx context.Context) (*Ticket, error) {
	a := p.q.await(ctx, p.w)
	if a.Err != nil {
		return nil, p.q.failed(a)
	}
	return &Ticket{q: p.q, w: p.w, ns: p.ns, answer: a}, nil
}

// Refused is the error of a request that never was in line.
func (p *Pass) Refused(a line.Answer) error {
	if a.Denied {
		p.q.c.Denials.Add(1)
	}
	return p.q.failed(a)
}

// Interrupted is the error of a request whose context has ended.
func (p *Pass) Interrupted(ctx context.Context) error { return p.q.interrupted(ctx) }

// Take waits until the permits of a Ticket are due, and takes them.
func (p *Pass) Take(ctx context.Context, t *Ticket) error { return t.redeem(ctx, p.q) }

// Denied returns a Ticket that was denied before it was in line.
func (p *Pass) Denied(wait time.Duration) *Ticket {
	p.q.c.Denials.Add(1)
	return &Ticket{q: p.q, ns: p.ns, w: line.NewWaiter(p.ns, p.q.c.now(), p.until, true, true), answer: line.Answer{Denied: true, Wait: wait}}
}
