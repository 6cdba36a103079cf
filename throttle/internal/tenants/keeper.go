package tenants

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/ended"
	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// Around is what a Keeper gets from its Client.
type Around struct {
	ID     string
	Now    func() line.Local
	At     func(time.Time) line.Local
	Call   func(ctx context.Context, s *redis.Script, keys []string, args ...any) (reply any, sent time.Time, err error)
	Listen func() // starts to hear of changes
}

// Keeper has the lines of a Client. A limiter has none if nobody asks for it in the name of a
// tenant.
type Keeper struct {
	Around
	nonce  string
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	lines  map[string]*queue
}

// New makes no call, and starts nothing.
func New(a Around) *Keeper {
	nonce := make([]byte, 8)
	_, _ = rand.Read(nonce) // it always fills it
	ctx, cancel := context.WithCancel(context.Background())
	return &Keeper{Around: a, nonce: hex.EncodeToString(nonce), ctx: ctx, cancel: cancel, lines: map[string]*queue{}}
}

// maxIdle is how many lines are kept even if nobody waits in them.
const maxIdle = 4096

// queue is a line with what it needs to run.
type queue struct {
	k    *Keeper
	name string
	keys []string
	uses int // callers that are in it, guarded by the mutex of the Keeper

	mu      sync.Mutex
	line    *Line
	of      map[*Waiter]*Pending
	running bool
	closed  bool
	wake    chan struct{}
}

// enter returns the line of a limiter. The caller must leave it.
func (k *Keeper) enter(name string) *queue {
	k.mu.Lock()
	defer k.mu.Unlock()
	q := k.lines[name]
	if q == nil {
		if len(k.lines) >= maxIdle {
			k.tidy()
		}
		q = &queue{
			k: k, name: name, keys: script.TenantKeys(name, k.ID, k.nonce), line: NewLine(k.nonce), of: map[*Waiter]*Pending{},
			closed: k.closed, wake: make(chan struct{}, 1),
		}
		k.lines[name] = q
	}
	q.uses++
	return q
}

// tidy forgets lines in which nobody waits.
func (k *Keeper) tidy() {
	for name, q := range k.lines {
		q.mu.Lock()
		idle := q.uses == 0 && !q.running
		q.mu.Unlock()
		if idle {
			delete(k.lines, name)
		}
	}
}

func (k *Keeper) leave(q *queue) {
	k.mu.Lock()
	defer k.mu.Unlock()
	q.uses--
}

// Heard says that a limiter was changed, or that permits were released.
func (k *Keeper) Heard(name string) {
	k.mu.Lock()
	q := k.lines[name]
	k.mu.Unlock()
	if q != nil {
		q.step(func() { q.line.Changed() })
	}
}

// Close ends every wait with line.ErrClosed, and waits until all goroutines have ended.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.closed = true
	queues := make([]*queue, 0, len(k.lines))
	for _, q := range k.lines {
		queues = append(queues, q)
	}
	k.mu.Unlock()
	for _, q := range queues {
		q.mu.Lock()
		q.closed = true
		q.mu.Unlock()
	}
	k.cancel()
	k.wg.Wait()
}

// Pending is a request that waits until its tenant is next. It is for one goroutine.
type Pending struct {
	q    *queue
	w    *Waiter
	next func()        // puts it at the end of the limiter's line
	came chan struct{} // closed when it is known whether the request goes on
	line.Answer
}

// Request is what is asked for.
type Request struct {
	Limiter, Tenant string
	Creates         bool // it creates the limiter
	Permits         int64
	Until           line.Local // when the permits must be due at the latest; zero: any time
	AtOnce          bool
	Next            func() // puts it at the end of the limiter's line, and does not wait
}

// Arrive puts a request into its tenant's line. The caller must say when it is Done.
func (k *Keeper) Arrive(r Request) *Pending {
	t := &Pending{q: k.enter(r.Limiter), next: r.Next, came: make(chan struct{})}
	t.w = NewWaiter(r.Tenant, r.Permits, k.Now(), r.Until, r.AtOnce)
	passes := false
	t.q.step(func() {
		if t.q.closed {
			t.w.state = over
			t.Err = line.ErrClosed
			close(t.came)
			return
		}
		if r.Creates {
			t.q.line.Creates()
		}
		if passes = t.q.line.Arrive(t.w, k.Now()); !passes {
			t.q.of[t.w] = t
		}
	})
	if passes {
		t.next()
		close(t.came)
	}
	return t
}

// stillFor is how long a request that does not wait (TryAcquire) stays without an answer at most.
const stillFor = 4 * time.Second

// Wait waits until the request has gone on to the limiter's line, and returns true. Otherwise
// Denied and the Answer say why not.
func (t *Pending) Wait(ctx context.Context) bool {
	select {
	case <-t.came:
		return t.went()
	default:
	}
	bounded := ctx
	if t.w.atOnce || t.w.until != 0 {
		patience := t.w.until.Sub(t.q.k.Now())
		if t.w.atOnce {
			patience = stillFor
		}
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	select {
	case <-t.came:
		return t.went()
	case <-bounded.Done():
	}
	if !t.leave() {
		<-t.came
		return t.went()
	}
	t.q.mu.Lock()
	unanswered, trouble := t.q.line.Trouble(t.w, t.q.k.Now())
	t.Answer.Wait = t.q.line.gap() // if it is denied
	t.q.mu.Unlock()
	err := ended.By(ctx)
	switch {
	case t.w.until != 0 && t.q.k.Now() >= t.w.until || err == nil: // its time is over
		if t.Denied = !unanswered; unanswered {
			t.Err = line.NoAnswer(trouble)
		}
	case trouble != nil:
		t.Err = line.Waiting(err, trouble)
	default:
		t.Err = err
	}
	return false
}

func (t *Pending) went() bool { return t.Err == nil && !t.Denied }

// leave takes the request out of its tenant's line; false if it is not there any more.
func (t *Pending) leave() (left bool) {
	t.q.step(func() {
		if left = t.q.line.Leave(t.w); left {
			delete(t.q.of, t.w)
		}
	})
	return left
}

// Decided says that the limiter's line has decided.
func (t *Pending) Decided() { t.q.step(func() { t.q.line.Decided(t.w) }) }

// Done says that the request is over, and whether it got its permits.
func (t *Pending) Done(granted bool) {
	t.q.step(func() { t.q.line.Done(t.w, granted) })
	t.q.k.leave(t.q)
}

// Return takes the charge for permits off a tenant.
func (k *Keeper) Return(limiter, tenant string, permits int64) {
	q := k.enter(limiter)
	q.step(func() { q.line.Return(tenant, permits) })
	k.leave(q)
}

// Waiting returns the limiters for which tenants wait here.
func (k *Keeper) Waiting() (limiters []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, q := range k.lines {
		q.mu.Lock()
		if q.line.waiting+len(q.of) > 0 || q.line.out+q.line.held != 0 {
			limiters = append(limiters, name)
		}
		q.mu.Unlock()
	}
	return limiters
}
