package slots

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/arrived"
	"github.com/jobthrottle/jobthrottle/internal/ended"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// queue is those who wait in this process for slots of the same limits. It makes one call at a
// time, for everybody who has come since the last call.
type queue struct {
	k      *Keeper
	limits []Limit
	token  string
	users  int // in the Keeper: guarded by its mutex

	mu       sync.Mutex
	waiting  map[string]*waiter // by id
	standing int                // how many of those are in line
	order    []*waiter          // those, and some that have left, by arrival
	asks     []*waiter          // to claim with the next call
	gives    []*giving          // to give back with it
	running  bool               // its goroutine runs
	closed   bool
	no       uint64
	polled   int   // how many of those behind the first have asked again, in this round
	trouble  error // error of the last call
	wake     chan struct{}
	idle     chan struct{} // closed when running ends
}

// waiter waits for a slot.
type waiter struct {
	id      string
	no      uint64
	made    time.Time     // when it came
	first   *atomic.Int64 // arrival, in microseconds of Redis's clock; 0: not known
	limit   atomic.Int64  // in whose line it waits
	stands  bool          // it is in line
	asking  bool          // it is in asks
	over    bool          // it has its answer, or has left
	again   *time.Timer   // makes it ask when another's lease may have ended; nil: there was none
	refused chan struct{} // gets a value when it is refused for the first time
	out     chan answer
}

// answer is a lease, or an error.
type answer struct {
	lease *Lease
	err   error
}

// giving is a slot that goes back. done is closed when Redis has answered or will not; err says
// whether it has the slot.
type giving struct {
	give
	done chan struct{}
	err  error
	dies time.Time // when it has ended on its own; zero: never
}

func newQueue(k *Keeper, limits []Limit, token string) *queue {
	return &queue{k: k, limits: slices.Clone(limits), token: token, waiting: map[string]*waiter{}, wake: make(chan struct{}, 1)}
}

// callKey is where Redis has the number of the queue's last call.
func (q *queue) callKey() string { return script.Prefix(q.limits[0].Name) + ":call:" + q.token }

// arrive puts a waiter into the queue. If one waits with the same id, it is told that another has
// come.
func (q *queue) arrive(limits []Limit, w *waiter) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrClosed
	}
	q.limits = limits // the latest configuration counts
	if old := q.waiting[w.id]; old != nil {
		if w.first.Load() == 0 {
			w.first.Store(old.first.Load())
		}
		q.answer(old, answer{err: ErrReentered})
	}
	q.waiting[w.id] = w
	q.order = append(q.order, w)
	q.ask(w)
	q.start()
	return nil
}

func (q *queue) ask(w *waiter) {
	if !w.asking {
		w.asking = true
		q.asks = append(q.asks, w)
	}
}

// answer ends the wait of w. The mutex is held.
func (q *queue) answer(w *waiter, a answer) {
	if w.over {
		return
	}
	q.out(w)
	if q.waiting[w.id] == w {
		delete(q.waiting, w.id)
	}
	w.out <- a
}

// out notes that w no longer waits. The mutex is held.
func (q *queue) out(w *waiter) {
	w.over = true
	if w.stands {
		q.standing--
	}
}

// start makes the queue's goroutine see what has to be done. The mutex is held.
func (q *queue) start() {
	if !q.running {
		q.running, q.idle = true, make(chan struct{})
		if !q.k.begin(q.run) {
			q.stop()
		}
		return
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// handed says that a slot was handed to the waiter with this id.
func (q *queue) handed(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.waiting[id]; w != nil {
		q.ask(w)
		q.start()
	}
}

// askAll makes all who wait ask.
func (q *queue) askAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.order {
		q.ask(w)
	}
	if q.running {
		q.start()
	}
}

// leave ends the wait of w, whose caller has gone, and returns the error that keeps Redis from
// answering, if there is one. What w was given goes back.
func (q *queue) leave(w *waiter) (trouble error) {
	q.mu.Lock()
	if w.over { // the answer may be a lease
		q.mu.Unlock()
		if a := <-w.out; a.lease != nil {
			a.lease.Free()
		}
		return nil
	}
	defer q.mu.Unlock()
	q.out(w)
	if q.waiting[w.id] == w {
		delete(q.waiting, w.id)
	}
	q.give(give{w.id, "0", w.no}, time.Time{})
	return q.trouble
}

// give makes a slot or a claim go back. The mutex is held.
func (q *queue) give(g give, dies time.Time) *giving {
	gone := &giving{give: g, done: make(chan struct{}), dies: dies}
	q.gives = append(q.gives, gone)
	q.start()
	return gone
}

// close refuses new waiters, and ends every wait.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, w := range q.order {
		if !w.over {
			q.give(give{w.id, "0", w.no}, time.Time{})
			q.answer(w, answer{err: ErrClosed})
		}
	}
}

// drained waits until the queue has nothing more to do.
func (q *queue) drained(patience time.Duration) {
	q.mu.Lock()
	running, idle := q.running, q.idle
	q.mu.Unlock()
	if !running {
		return
	}
	select {
	case <-idle:
	case <-time.After(patience):
	}
}

// Acquire waits for a slot of each of the limits, for the holder with this id. first is the
// holder's first arrival in microseconds of Redis's clock, or 0 for now: then Acquire sets it.
// refused, if not nil, is called when the slots are not free. An error concerns the limit with
// the returned index.
func (k *Keeper) Acquire(ctx context.Context, limits []Limit, id string, first *atomic.Int64, refused func()) (lease *Lease, limit int, err error) {
	if ctx.Err() != nil {
		return nil, 0, ended.By(ctx)
	}
	q, err := k.enter(limits)
	if err != nil {
		return nil, 0, err
	}
	defer k.leave(q)
	w := &waiter{id: id, no: k.claims.Add(1), made: time.Now(), first: first, out: make(chan answer, 1), refused: make(chan struct{}, 1)}
	if err := q.arrive(limits, w); err != nil {
		return nil, 0, err
	}
	arrived.Tell(ctx) // who asks next waits behind it
	for {
		select {
		case a := <-w.out:
			return a.lease, int(w.limit.Load()), a.err
		case <-w.refused:
			if refused != nil {
				refused()
				refused = nil
			}
		case <-ctx.Done():
			trouble := q.leave(w)
			err := ended.By(ctx)
			if trouble != nil {
				err = fmt.Errorf("%w, waiting for Redis: %w", err, trouble)
			}
			return nil, int(w.limit.Load()), err
		}
	}
}

// Waiting is how many in this process wait for a slot and are in line.
func (k *Keeper) Waiting() (n int) {
	k.mu.Lock()
	queues := slices.Collect(maps.Values(k.queues))
	k.mu.Unlock()
	for _, q := range queues {
		q.mu.Lock()
		n += q.standing
		q.mu.Unlock()
	}
	return n
}

// Crowded reports whether somebody waits here for slots of these limits.
func (k *Keeper) Crowded(limits []Limit) bool {
	k.mu.Lock()
	q := k.queues[keyOf(limits)]
	k.mu.Unlock()
	if q == nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.standing > 0
}
