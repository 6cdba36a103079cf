package slots

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/ended"
)

// Lease is a slot that is held. Its methods may be called concurrently.
type Lease struct {
	q      *queue
	id     string
	fence  string
	no     uint64
	names  []string
	ctx    leaseContext
	cancel context.CancelCauseFunc

	released *giving // under q.mu

	mu      sync.Mutex
	ends    time.Time // when it can have ended at the earliest, less the margin
	renewAt time.Time
	lasts   time.Duration
	timer   *time.Timer
	over    bool
}

// leaseContext ends with its lease. Its Err compares the clock, so a process that was stopped
// notices the end when it goes on.
type leaseContext struct {
	context.Context
	l *Lease
}

// Err is nil as long as the slot is certainly held.
func (c leaseContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	c.l.mu.Lock()
	late := !time.Now().Before(c.l.ends)
	c.l.mu.Unlock()
	if late {
		c.l.end(ErrEnded)
	}
	return c.Context.Err()
}

// margin is how long before its lease can have ended a holder is told: its time to stop.
func margin(lasts time.Duration) time.Duration { return lasts / 20 }

// newLease notes a lease that was given and lasts at least until then. It returns nil if the
// Keeper is closed.
func newLease(q *queue, w *waiter, fence string, until time.Time, lasts time.Duration) *Lease {
	ctx, cancel := context.WithCancelCause(context.Background())
	l := &Lease{q: q, id: w.id, fence: fence, no: w.no, lasts: lasts, cancel: cancel}
	for _, limit := range q.limits {
		l.names = append(l.names, limit.Name)
	}
	l.ctx = leaseContext{ctx, l}
	l.ends, l.renewAt = until.Add(-margin(lasts)), until.Add(-lasts+lasts/3)
	k := q.k
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		cancel(ErrClosed)
		return nil
	}
	key := holder{q, w.id}
	if other := k.leases[key]; other != nil {
		defer other.end(ErrReentered)
	}
	k.leases[key] = l
	q.users++
	l.mu.Lock()
	l.timer = time.AfterFunc(time.Until(l.ends), l.check) // check may run at once
	l.mu.Unlock()
	if !k.renews {
		k.renews, k.renewNext = true, l.renewAt
		k.wg.Go(k.renew)
	}
	sooner := l.renewAt.Before(k.renewNext)
	k.mu.Unlock()
	if sooner {
		select {
		case k.renewNow <- struct{}{}:
		default:
		}
	}
	return l
}

// supersede ends the lease of a holder whose slot a later claim has got.
func (k *Keeper) supersede(of holder) {
	k.mu.Lock()
	l := k.leases[of]
	k.mu.Unlock()
	if l != nil {
		l.end(ErrReentered)
	}
}

// ID is the id of the holder.
func (l *Lease) ID() string { return l.id }

// Context ends when the slot goes back, is lost, or can be lost at any time: the cause says
// which.
func (l *Lease) Context() context.Context { return l.ctx }

// check ends the lease if its time is over.
func (l *Lease) check() {
	l.mu.Lock()
	left := time.Until(l.ends)
	if left > 0 && !l.over {
		l.timer.Reset(left)
	}
	l.mu.Unlock()
	if left <= 0 {
		l.end(ErrEnded)
	}
}

// end ends the lease's context, and the lease is no longer renewed.
func (l *Lease) end(cause error) {
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return
	}
	l.over = true
	l.timer.Stop()
	l.mu.Unlock()
	l.cancel(cause)
	k := l.q.k
	k.mu.Lock()
	defer k.mu.Unlock()
	l.q.users--
	if key := (holder{l.q, l.id}); k.leases[key] == l {
		delete(k.leases, key)
	}
}

// ErrReleased is the cause with which the context of a released lease ends.
var ErrReleased = errors.New("the slot was released")

// back gives the slot back, once.
func (l *Lease) back() *giving {
	l.end(ErrReleased)
	l.mu.Lock()
	dies := l.ends.Add(margin(l.lasts))
	l.mu.Unlock() // the Keeper locks leases, and giving locks the Keeper
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	if l.released == nil {
		l.released = l.q.give(give{l.id, l.fence, l.no}, dies)
	}
	return l.released
}

// Free gives the slot back soon, without waiting for that.
func (l *Lease) Free() { l.back() }

// Release gives the slot back and waits until Redis has it, or ctx ends; the slot goes back in
// either case. A lease that has run out is released already. An error concerns the limit with the
// returned index.
func (l *Lease) Release(ctx context.Context) (limit int, err error) {
	g := l.back()
	select {
	case <-g.done:
		limit, _ = ofLimit(g.err)
		return limit, g.err
	case <-ctx.Done():
		return 0, ended.By(ctx)
	}
}
