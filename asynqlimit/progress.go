package asynqlimit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// attempt is one attempt of one task in this process, from its dequeue to the script with which
// asynq ends it.
type attempt struct {
	queue, id string
	kept      bool          // asynq keeps the task, with its result, once it is done
	wait      line.Wait     // how it has waited before; zero if it is new
	by        string        // which take this is, as Redis notes it
	first     int64         // when it was first taken from its queue, by Redis's clock; 0: nobody keeps orders
	standing  line.Standing // in the order of its limits in flight; only the middleware uses it once it has the task
	since     int64         // its arrival, by Redis's clock, in microseconds after 1970
	came      time.Time     // when it was taken
	earlier   time.Duration // the time from its arrival until it was taken
	position  *position
	before    <-chan struct{} // closed when the attempt that came before it has asked; nil: there is none
	asked     chan struct{}   // closed when it has asked for its permits, or will not ask any more
	asks      sync.Once
	called    bool      // it was called from the line that wait names
	from      time.Time // when asynq can have it: it may not be done with the attempt before this one
	pending   *pending  // it was called, and its limiter has not answered: for the caller

	mu       sync.Mutex
	leased   time.Time // when its lease ends; zero: not known
	last     time.Time // when it was taken, or ended
	phase    phase
	fate     fate
	parking  line.Parking    // where it parks
	off      bool            // it is off the list of tasks that wait in processes
	left     <-chan struct{} // closed when Redis knows that it is off the list; nil: Redis knows
	settled  bool            // asynq ends it: nothing of it may begin any more
	noted    bool            // the script that ends it has run
	over     bool            // its middleware has returned
	refused  bool            // its API has refused it for longer than max_wait: that is its failure
	competed time.Time       // since when it has competed for a slot, and got none
}

func (a *attempt) key() attemptKey { return attemptKey{a.queue, a.id} }

// hasCompeted notes since when the task has competed for a slot, and got none.
func (a *attempt) hasCompeted(since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.competed = since
}

// ask records that the task is in line for its permits, or that those behind it need not wait for
// that.
func (a *attempt) ask() { a.asks.Do(func() { close(a.asked) }) }

// inOrder is how long a task waits until the one before it has asked for its permits. That one
// may have to set a new rate in Redis first, for example.
const inOrder = 250 * time.Millisecond

// inTurn waits until the task that came before has asked for its permits: jobs ask in the order
// in which they came.
func (a *attempt) inTurn(ctx context.Context) {
	if a.before == nil {
		return
	}
	select {
	case <-a.before:
		return
	default:
	}
	timer := time.NewTimer(inOrder)
	defer timer.Stop()
	select {
	case <-a.before:
	case <-ctx.Done():
	case <-timer.C:
	}
}

// wholeWait is how long the task has waited since its arrival.
func (a *attempt) wholeWait() time.Duration { return a.earlier + time.Since(a.came) }

// start records that the middleware has the task. It returns false if asynq has ended the
// attempt.
func (a *attempt) start() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled {
		return false
	}
	a.phase, a.parking = waits, line.Parking{Since: a.since}
	return true
}

// finish records that the middleware has returned, and whether the task is done.
func (a *attempt) finish(done bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over, a.last = true, time.Now()
	a.settled = a.settled || done
}

// note records that Redis knows what became of the task.
func (a *attempt) note() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noted = true
}

// goesOn records that the attempt is in a later phase. It returns false if asynq has ended the
// attempt, or its lease is over: then the task is for others, and asynq would not note what becomes of it here.
func (a *attempt) goesOn(p phase) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled || !a.hasLease() {
		return false
	}
	a.phase, a.fate = p, open
	return true
}

// pauses records that the task waits for permits which its handler gets itself, until the returned function is called:
// meanwhile nothing has failed, as before its handler was called.
func (a *attempt) pauses() (over func()) {
	if !a.moves(prepares, waits) {
		return func() {}
	}
	return func() { a.moves(waits, prepares) }
}

// moves records that an attempt in one phase is in another, and reports whether it was in the first.
func (a *attempt) moves(from, to phase) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != from {
		return false
	}
	a.phase = to
	return true
}

// unlist records that the task is off the list. It returns whether the task was on the list, and
// a channel that is closed when Redis knows that it is off, from this call or an earlier one.
func (a *attempt) unlist(left <-chan struct{}) (was bool, since <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if was = !a.off; was {
		a.off, a.left = true, left
	}
	return was, a.left
}

// relist records that the task is on the list although its attempt is over.
func (a *attempt) relist() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.off, a.left = false, nil
}

// list records that the task is on the list. It returns whether the task was off the list. A task
// whose attempt has ended stays off: it has parked, or has left.
func (a *attempt) list() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled {
		return false
	}
	was := a.off
	a.off, a.left = false, nil
	return was
}

// listed reports whether the task is on the list.
func (a *attempt) listed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.off
}

// at returns how far the attempt has come.
func (a *attempt) at() phase {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.phase
}

// waitsFor sets where the task parks if its wait ends before its permits are due.
func (a *attempt) waitsFor(parking line.Parking) { a.decide(open, parking) }

// decide sets what becomes of the task when the attempt ends.
func (a *attempt) decide(f fate, parking line.Parking) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fate, a.parking = f, parking
}

// parksIn returns the line in which the task parks when the attempt ends, or "" if it parks in none.
func (a *attempt) parksIn() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fate != parks {
		return ""
	}
	return a.parking.Line
}

// goesBack records that the task goes back to its queue when the attempt ends.
func (a *attempt) goesBack() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fate = returns
}

// errEnded stands for the reason why asynq retries or archives a task whose attempt is not over.
var errEnded = errors.New("asynq has ended the attempt")

// ending returns what becomes of the task if asynq ends the attempt now, and where it parks.
func (a *attempt) ending(step line.Step) (fate, line.Parking) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.endingNow(step)
}

func (a *attempt) endingNow(step line.Step) (fate, line.Parking) {
	f, requeued := a.fate, step == line.Requeue
	switch {
	case f == open && requeued:
		f = fateOf(a.phase, nil, false, true)
	case f == open:
		f = fateOf(a.phase, errEnded, true, a.phase == prepares && !a.hasLease()) // without a lease it is as if the process drained
	}
	if f == parks && (requeued || a.parking.Line == "" && a.parking.Away == 0) {
		f = returns
	}
	parking := a.parking
	if a.phase == taken {
		parking = a.untouched()
	}
	parking.By = a.by
	return f, parking
}

// refusedTooLong records that the attempt fails because the API refuses the task, and wasRefused reports that.
func (a *attempt) refusedTooLong() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused = true
}

func (a *attempt) wasRefused() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused
}

// untouched is the parking of a task that has asked for nothing in this process: as in its last
// wait, if it had one.
func (a *attempt) untouched() line.Parking {
	return line.Parking{By: a.by, Since: a.since, Cost: a.wait.Cost, Refused: a.wait.Refused, Line: a.wait.Line, Untried: !a.wait.State.Near()}
}

// settle records that asynq ends the attempt, and returns what becomes of the task.
func (a *attempt) settle(step line.Step) (fate, line.Parking) {
	a.mu.Lock()
	a.settled = true
	a.mu.Unlock()
	return a.ending(step)
}
