package asynqlimit

import (
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// phase is how far the attempt of a task has come. It decides what becomes of the
// task when asynq ends the attempt.
type phase int

const (
	taken   phase = iota // from its queue; its attempt has not begun
	waits                // for its permits: it parks
	runs                 // its handler does: asynq's own rules stand
	putOff               // its handler, or its limits, put it off: it parks
	returns              // its process drains: it goes back to the head of its queue
)

// attempt is one attempt of one task in this process, from its dequeue to the
// script with which asynq ends it.
type attempt struct {
	queue, id string
	wait      line.Wait // how it has waited before; zero if it is new
	since     int64     // its arrival, by Redis's clock, in microseconds after 1970
	seat      *seat
	asked     chan struct{} // closed when it has asked for its permits, or will not
	asks      sync.Once
	pending   bool // it was called, and its limiter has not answered: for the caller

	mu      sync.Mutex
	last    time.Time // when it was taken, or was over
	phase   phase
	place   line.Place // where it parks
	began   bool       // its middleware has begun
	settled bool       // asynq has ended it
	over    bool       // its middleware has
}

// ask says that the task asks for its permits now, or that those behind it need not
// wait for that.
func (a *attempt) ask() { a.asks.Do(func() { close(a.asked) }) }

// start says that the middleware has the task. Until its handler runs, it waits.
func (a *attempt) start() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.began, a.phase, a.place = true, waits, line.Place{Since: a.since}
}

// finish says that the middleware has returned. What was done is asynq's to note.
func (a *attempt) finish(done bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over, a.last = true, time.Now()
	a.settled = a.settled || done
}

// begin says that the handler is to run, unless asynq has ended the attempt.
func (a *attempt) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled {
		return false
	}
	a.phase = runs
	return true
}

// now says what becomes of the task from here on.
func (a *attempt) now(p phase, place line.Place) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.phase, a.place = p, place
}

// settle says what becomes of the task that asynq has retried, archived or given back.
func (a *attempt) settle() (phase, line.Place) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settled = true
	return a.phase, a.place
}

// attempts are those of one process, by task.
type attempts struct {
	mu  sync.Mutex
	all map[attemptKey]*attempt
}

type attemptKey struct{ queue, id string }

func newAttempts() *attempts { return &attempts{all: map[attemptKey]*attempt{}} }

// put notes a task that was taken. An attempt of the same task that is still
// there was given up by asynq: its lease had lapsed.
func (t *attempts) put(a *attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all[attemptKey{a.queue, a.id}] = a
}

func (t *attempts) get(queue, id string) *attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[attemptKey{queue, id}]
}

// drop forgets an attempt that has ended here and in asynq.
func (t *attempts) drop(a *attempt) {
	a.mu.Lock()
	ended := a.settled && a.over
	a.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if key := (attemptKey{a.queue, a.id}); ended && t.all[key] == a {
		delete(t.all, key)
	}
}

const (
	// neverBegan is when an attempt that was taken counts as one that asynq did not begin.
	neverBegan = 5 * time.Second
	// forgotten is when the task of an attempt that is over is asynq's alone: what
	// is left of its lease, asynq's cut-off behind that, and two looks of its recoverer.
	forgotten = 3 * time.Minute
)

// sweep gives back the seats of attempts that asynq took and never began, and
// forgets those that it never ended.
func (t *attempts) sweep(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, a := range t.all {
		a.mu.Lock()
		idle := !a.began && now.Sub(a.last) > neverBegan
		old := (a.over || !a.began) && now.Sub(a.last) > forgotten
		a.mu.Unlock()
		if idle {
			a.seat.leave()
		}
		if old {
			delete(t.all, key)
		}
	}
}
