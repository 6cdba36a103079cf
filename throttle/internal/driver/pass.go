package driver

import (
	"context"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
)

// Pass is a request that stands in line from when somebody lets it. It is for one
// goroutine, but for Ask.
type Pass struct {
	q      *queue
	ns     []int64
	until  line.Local
	hold   bool // a reservation
	atOnce bool // it wants an answer now
	w      *line.Waiter
}

// Pass is one for ns, within wait; endless if that is negative. The caller must Leave it.
func (e *Entry) Pass(ctx context.Context, ns []int64, wait time.Duration, hold bool) *Pass {
	p := &Pass{q: e.enter(), ns: ns, hold: hold, atOnce: wait == 0}
	if wait < 0 {
		wait = endless
	}
	p.until = until(ctx, p.q.c.now(), wait)
	p.q.c.Waiting.Add(1)
	return p
}

// Leave is the end of it. A Ticket outlives it.
func (p *Pass) Leave() {
	p.q.c.Waiting.Add(-1)
	p.q.leave()
}

// Until is the latest turn that is of use; zero: any.
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

// Place waits, once it stands in line, for a place or a refusal.
func (p *Pass) Await(ctx context.Context) (*Ticket, error) {
	a := p.q.await(ctx, p.w)
	if a.Err != nil {
		return nil, p.q.failed(a)
	}
	return &Ticket{q: p.q, w: p.w, ns: p.ns, answer: a}, nil
}

// Refused is the error of a request that never stood in line.
func (p *Pass) Refused(a line.Answer) error {
	if a.Denied {
		p.q.c.Denials.Add(1)
	}
	return p.q.failed(a)
}

// Interrupted is that of one whose context has ended.
func (p *Pass) Interrupted(ctx context.Context) error { return p.q.interrupted(ctx) }

// Take waits until the turn of its place comes, and takes the permits.
func (p *Pass) Take(ctx context.Context, t *Ticket) error { return t.redeem(ctx, p.q) }

// Denied is a ticket that was refused before it stood in line.
func (p *Pass) Denied(wait time.Duration) *Ticket {
	p.q.c.Denials.Add(1)
	return &Ticket{q: p.q, ns: p.ns, w: line.NewWaiter(p.ns, p.q.c.now(), p.until, true, true), answer: line.Answer{Denied: true, Wait: wait}}
}
