package asynqlimit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// attempt is one attempt of one task in this process, from its dequeue to the
// script with which asynq ends it.
type attempt struct {
	queue, id string
	wait      line.Wait     // how it has waited before; zero if it is new
	by        string        // the take, as Redis notes it
	first     int64         // when it was first taken from its queue, by the same; 0: nobody keeps orders
	standing  line.Standing // in the order of its limits in flight: of the middleware, once that has it
	since     int64         // its arrival, by Redis's clock, in microseconds after 1970
	came      time.Time     // when it was taken
	earlier   time.Duration // from its arrival until then
	position  *position
	before    <-chan struct{} // closed when the one that came before it has asked; nil: there is none
	asked     chan struct{}   // closed when it has asked for its permits, or will not now
	asks      sync.Once
	called    bool // from the line that wait names
	pending   bool // it was called, and its limiter has not answered: for the caller

	mu      sync.Mutex
	last    time.Time // when it was taken, or was over
	phase   phase
	fate    fate
	parking line.Parking    // where it parks
	off     bool            // the list of those that wait in processes
	left    <-chan struct{} // closed when Redis knows that; nil: it is known
	settled bool            // asynq ends it: nothing of it begins any more
	noted   bool            // and the script that does so has run
	over    bool            // its middleware has returned
}

func (a *attempt) key() attemptKey { return attemptKey{a.queue, a.id} }

// ask says that the task stands in line for its permits, or that those behind it need
// not wait for that.
func (a *attempt) ask() { a.asks.Do(func() { close(a.asked) }) }

// inOrder is how long a task waits for the one before it to ask for its permits: to
// be set a new rate in Redis first, for one.
const inOrder = 250 * time.Millisecond

// inTurn waits until the task that came before has asked for its permits: jobs ask
// in the order in which they came.
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

// start says that the middleware has the task, unless asynq has ended the attempt.
func (a *attempt) start() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled {
		return false
	}
	a.phase, a.parking = waits, line.Parking{Since: a.since}
	return true
}

// finish says that the middleware has returned. What was done is asynq's to note.
func (a *attempt) finish(done bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over, a.last = true, time.Now()
	a.settled, a.noted = a.settled || done, a.noted || done
}

// note says that Redis has what became of the task.
func (a *attempt) note() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noted = true
}

// goesOn says that the attempt is in a later phase, unless asynq has ended it.
func (a *attempt) goesOn(p phase) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled {
		return false
	}
	a.phase, a.fate = p, open
	return true
}

// unlist says that the task is off the list, and whether it was on it. Left is closed
// when Redis knows that, from this or from an earlier call.
func (a *attempt) unlist(left <-chan struct{}) (was bool, since <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if was = !a.off; was {
		a.off, a.left = true, left
	}
	return was, a.left
}

// relist says that the task is on the list, though its attempt is over.
func (a *attempt) relist() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.off, a.left = false, nil
}

// list says that the task is on the list, and whether it was off it. One whose attempt
// asynq has ended is parked, or has left.
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

// listed says whether the task is on the list.
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

// waitsFor says where the task parks if its wait ends before its turn.
func (a *attempt) waitsFor(parking line.Parking) { a.decide(open, parking) }

// decide says what becomes of the task when the attempt ends.
func (a *attempt) decide(f fate, parking line.Parking) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fate, a.parking = f, parking
}

// errEnded stands for the reason why asynq retries or archives a task whose
// attempt is not over.
var errEnded = errors.New("asynq has ended the attempt")

// ending says what becomes of the task if asynq ends the attempt now, and where it
// parks.
func (a *attempt) ending(step line.Step) (fate, line.Parking) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f, requeued := a.fate, step == line.Requeue
	switch {
	case f == open && requeued:
		f = fateOf(a.phase, nil, false, true)
	case f == open:
		f = fateOf(a.phase, errEnded, true, false)
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

// untouched is the place of a task that asks for nothing in this process: that of
// its last wait, if it had one.
func (a *attempt) untouched() line.Parking {
	return line.Parking{By: a.by, Since: a.since, Cost: a.wait.Cost, Refused: a.wait.Refused, Line: a.wait.Line, Untried: !a.wait.State.Near()}
}

// settle says that asynq ends the attempt, and what becomes of the task.
func (a *attempt) settle(step line.Step) (fate, line.Parking) {
	a.mu.Lock()
	a.settled = true
	a.mu.Unlock()
	return a.ending(step)
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
	t.all[a.key()] = a
}

func (t *attempts) get(queue, id string) *attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[attemptKey{queue, id}]
}

// drop forgets an attempt that has ended here and in asynq.
func (t *attempts) drop(a *attempt) {
	a.mu.Lock()
	ended := a.noted && a.over
	a.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if key := a.key(); ended && t.all[key] == a {
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

// sweep gives back the seats of attempts that asynq took and never began, which it
// returns, and forgets those that it never ended.
func (t *attempts) sweep(now time.Time) (idle []*attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, a := range t.all {
		a.mu.Lock()
		never := a.phase == taken && now.Sub(a.last) > neverBegan
		old := (a.over || a.phase == taken) && now.Sub(a.last) > forgotten
		a.mu.Unlock()
		if never {
			a.position.leave()
			idle = append(idle, a)
		}
		if old {
			delete(t.all, key)
		}
	}
	return idle
}
