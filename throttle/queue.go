package throttle

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// freshFor is how long a client may act on the configuration it last saw:
	// changes stop waiters of every process within this time and a round trip.
	freshFor = 100 * time.Millisecond
	// refreshEvery is how often a process has the cached value rebuilt.
	refreshEvery = 10 * time.Second
)

// queue holds the waiters of one limiter, or group, in one Client. At most one
// call is under way for it; whoever arrives meanwhile is in the next. Its
// runner (runner.go) lives only while there is something to ask.
type queue struct {
	c        *Client
	members  []*Limiter
	replyKey string // where Redis keeps the reply to the last batch
	keys     []string
	users    atomic.Int32 // calls that use the queue now

	mu       sync.Mutex
	closed   bool
	running  bool                 // a runner, or a caller, owns the calls
	stopped  chan struct{}        // closed when the last runner of a closed queue has ended
	timer    *time.Timer          // starts the next runner
	poke     chan struct{}        // cuts a runner's backoff short
	front    []*waiter            // to be asked again, ahead of waiting
	waiting  []*waiter            // in the order of their arrival
	placed   map[*waiter]struct{} // see hold and letGo
	reserved []*atomic.Int64      // of each member, by all queues of the client
	returns  []returned
	releases []*releasing
	stock    stock

	arrivals     uint64
	seq          uint64
	config       []settings
	heardAt      time.Time // when the latest request was sent that was answered; zero: too long ago to act on
	doubts       uint64    // of what is known of the configuration: of a request before one, the answer is too old
	refreshedAt  time.Time
	askAt        time.Time // the horizon does not reach the head of the queue before
	movedUpAt    time.Time
	moveUpAt     time.Time // when to ask for the places anew that are not near; zero: there is no need
	urgentAt     time.Time // when somebody must have an answer, if before askAt; zero: nobody
	binding      bool      // the latest batch did not get all it asked for at once
	scarceUntil  time.Time // fast.lua, which found too little free, is not tried before
	lookedAt     time.Time // when fast.lua last looked after all
	unlooked     int       // its calls since
	gathering    gathering
	fullUntil    time.Time // when the latest place that was had falls due
	fullFor      []int64   // what it was for
	moment       int64     // of the latest places that were had, in us of Redis's clock
	seated       int       // how many it has of them
	surplus      surplus
	used         usage // of the first member
	contenders   int64 // processes that ask for places far ahead, as far as known
	clock        serverClock
	told         serverClock   // as acquire.lua told it: what it is told in return
	far          time.Duration // up to where Redis lets places stand for this queue when the configuration changes, if that is more than freshFor
	callingSince atomic.Int64  // since when it waits for an answer, in ns; zero if it does not
	roundTrips   roundTrips
	trouble      error // why the last call failed, until one succeeds
	failures     int   // looks at the configuration that failed since one did not
}

// returned is a place given back; done, if any, is closed when Redis has it.
type returned struct {
	place place
	ns    []int64
	by    *waiter // who asks for another in exchange; nil if nobody does
	done  chan struct{}
}

type releasing struct {
	ns   []int64
	done chan error
}

func newQueue(c *Client, ls []*Limiter) *queue {
	q := &queue{
		c:        c,
		members:  ls,
		replyKey: c.replyKey(ls[0]),
		stopped:  make(chan struct{}),
		poke:     make(chan struct{}, 1),
		placed:   make(map[*waiter]struct{}),
		config:   make([]settings, len(ls)),
	}
	if way := c.way.Load(); way != nil {
		q.roundTrips = *way
	}
	q.keys = append(q.keys, q.replyKey)
	for _, l := range ls {
		q.reserved = append(q.reserved, c.reservedOf(l))
		q.keys = append(q.keys, l.keys[:]...)
	}
	return q
}

// retired is the number of users of a queue that the Client has forgotten.
const retired = math.MinInt32

// enter keeps the queue from being forgotten until leave. It reports false if
// that has happened already.
func (q *queue) enter() bool {
	if q.users.Add(1) > 0 {
		return true
	}
	q.leave()
	return false
}

func (q *queue) leave() { q.users.Add(-1) }

// retire reports whether the queue was idle and is now not to be entered again.
func (q *queue) retire() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.checkAt(time.Now())
	return !q.running && len(q.front)+len(q.waiting)+len(q.placed)+len(q.returns)+len(q.releases) == 0 &&
		q.users.CompareAndSwap(0, retired)
}

func (q *queue) error(member int, err error) error {
	return &Error{Limiter: q.members[member].name, Err: err}
}

// enqueue puts a waiter at the end of the queue, and makes its call where nobody
// else does.
func (q *queue) enqueue(ctx context.Context, w *waiter) error {
	b, err := q.admit(ctx, w)
	if b == nil {
		return err
	}
	served := false
	defer func() {
		if !served { // a hook of the Redis client panicked: nobody waits any more
			q.abandon(w, 0)
		}
	}()
	q.serve(ctx, b)
	served = true
	return nil
}

// admit puts a waiter at the end of the queue. If it returns a batch, that is
// the caller's to serve.
func (q *queue) admit(ctx context.Context, w *waiter) (*batch, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, q.error(0, ErrClosed)
	}
	q.arrivals++
	w.no = q.arrivals
	q.waiting = append(q.waiting, w)
	now := time.Now()
	at := now
	if q.patient(w, now) && q.taken(w.ns, now) > 4*gatherFor {
		at = q.gatherUntil(w.ns, now)
	}
	if !w.until.IsZero() {
		q.gathering.limit(w.until, now)
	}
	q.gathering.joined()
	if len(q.waiting) == 1 {
		q.gather(w.ns, now)
	}
	if !w.until.IsZero() && (q.urgentAt.IsZero() || at.Before(q.urgentAt)) {
		q.urgentAt = at // its answer may be no, and it wants to know
	}
	if len(q.waiting) == 1 && q.askAt.Before(at) && at != now {
		q.askAt = at
	}
	if w.now && q.trouble != nil {
		select {
		case q.poke <- struct{}{}:
		default:
		}
	}
	switch {
	case q.running:
	case now.Before(q.nextAsk()):
		q.arm(now)
	case q.mayServe(ctx, w, now):
		q.running = true
		q.c.wg.Add(1)
		return q.nextBatch(now), nil
	default:
		q.kick()
	}
	return nil, nil
}

// patient reports whether a request is served, as far as known, by its deadline.
func (q *queue) patient(w *waiter, now time.Time) bool {
	return w.until.IsZero() || w.until.Sub(later(now, q.fullUntil)) > q.horizon(w.ns)
}

// release gives back permits of each member that were handed out.
func (q *queue) release(ctx context.Context, ns []int64) error {
	defer q.leave()
	r := &releasing{ns: ns, done: make(chan error, 1)}
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return q.error(0, ErrClosed)
	}
	q.releases = append(q.releases, r)
	q.kick()
	q.mu.Unlock()
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return q.interrupted(ctx)
	}
}

// doubt makes the queue look at the configuration before it acts again.
func (q *queue) doubt() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.heardAt = time.Time{}
	q.doubts++
	if len(q.placed)+len(q.waiting)+len(q.front) > 0 {
		q.askAt = time.Time{}
		q.kick()
	}
}

// halfGuard is how late a permit may be handed out; zero if any time will do.
func (q *queue) halfGuard() time.Duration {
	var least time.Duration
	for _, s := range q.config {
		if s.guard > 0 && (least == 0 || s.guard < least) {
			least = s.guard
		}
	}
	return least / 2
}

// span is the shortest time for which a permit counts.
func (q *queue) span() time.Duration {
	least := forever
	for _, s := range q.config {
		least = min(least, s.span())
	}
	return least
}

// close ends all waits and hands their places to the runner to give back.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.closed = true
	if q.timer != nil {
		q.timer.Stop()
	}
	for w := range q.placed {
		q.returns = append(q.returns, returned{place: w.place, ns: w.ns})
		q.letGo(w) // what a call under way tells of the configuration concerns it no more
		q.answer(w, outcome{err: q.error(0, ErrClosed)})
	}
	for _, w := range slices.Concat(q.front, q.waiting) {
		q.answer(w, outcome{err: q.error(0, ErrClosed)})
	}
	q.front, q.waiting = nil, nil
	q.returnStock()
	switch {
	case q.running:
	case len(q.returns)+len(q.releases) > 0:
		q.running = true
		q.c.wg.Go(q.run)
	default:
		close(q.stopped)
	}
}

// flush waits until a closed queue has given everything back.
func (q *queue) flush(ctx context.Context) error {
	select {
	case <-q.stopped:
		return nil
	case <-ctx.Done():
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.trouble != nil {
			return q.trouble
		}
		return ctx.Err()
	}
}
