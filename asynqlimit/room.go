package asynqlimit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// room keeps the list in Redis of the tasks of a queue that wait in processes. The script that
// takes a task from its queue puts it on the list. The task is off the list when it begins to run
// or when its attempt has ended: the scripts that park it or give it back take it off. If the
// process is killed, asynq's recoverer finds that the leases of its tasks have lapsed. Tasks on
// the list have not begun, and go back to their queues without a failure.
//
// Each queue has its own list and its own calls: if the shard of one queue is slow, tasks of
// other queues still start. Changes go to Redis together: those that come during a call make up
// the next call.
type room struct {
	lines   *line.Lines
	queue   string
	logger  *slog.Logger
	wake    chan struct{}
	answers *answers

	mu      sync.Mutex
	changes map[attemptKey]change
	next    chan struct{} // closed when they are in Redis
	flying  map[attemptKey]change
	landed  chan struct{} // closed when the changes in flying are
}

// change is a change of the list by an attempt: it enters or leaves.
type change struct {
	a      *attempt
	enters bool
}

func newRoom(lines *line.Lines, queue string, logger *slog.Logger) *room {
	return &room{lines: lines, queue: queue, logger: logger, wake: make(chan struct{}, 1), answers: newAnswers(lines, queue), changes: map[attemptKey]change{}, next: make(chan struct{})}
}

// taken records a new attempt, whose task is on the list. Changes by an earlier attempt do not
// count any more.
func (r *room) taken(a *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.changes, a.key())
}

// enter puts the task of an attempt back on the list, soon.
func (r *room) enter(a *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.list() {
		r.note(change{a, true})
	}
}

// waits puts a task on the list that could neither be parked nor given back, so that asynq's
// recoverer brings it back.
func (r *room) waits(a *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.relist()
	r.note(change{a, true})
}

// leaving takes the task of an attempt off the list, soon, and returns a channel that is closed
// when that is done.
func (r *room) leaving(a *attempt) (done <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	listed, done := a.unlist(r.next)
	if listed {
		r.note(change{a, false})
	}
	return done
}

func (r *room) note(c change) {
	r.changes[c.a.key()] = c
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// leaveLasts is how long a start waits for Redis to know that the task does not wait any more. To
// start the task matters more than an exact list.
const leaveLasts = time.Second

// leave takes the task of an attempt off the list, and waits until that is done or ctx ends:
// permits are not to be late for it.
func (r *room) leave(ctx context.Context, a *attempt) { await(ctx, r.leaving(a)) }

// stay leaves the list to the script that parks the task of an attempt, or gives it back. After
// stay, no change by the attempt comes in between.
func (r *room) stay(ctx context.Context, a *attempt) {
	r.mu.Lock()
	if r.changes[a.key()].a == a {
		delete(r.changes, a.key())
	}
	var landed chan struct{}
	if r.flying[a.key()].a == a {
		landed = r.landed
	}
	r.mu.Unlock()
	await(ctx, landed)
}

// await waits until done is closed, but no longer than leaveLasts. If done is nil, there is
// nothing to wait for.
func await(ctx context.Context, done <-chan struct{}) {
	if done == nil {
		return
	}
	select {
	case <-done:
		return
	default:
	}
	timer := time.NewTimer(leaveLasts)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// run sends the changes of the list to Redis until ctx ends.
func (r *room) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
			defer cancel()
			r.flush(last)
			return
		case <-r.wake:
		}
		for ctx.Err() == nil && !r.flush(ctx) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

// flush sends the noted changes to Redis, and reports whether that succeeded.
func (r *room) flush(ctx context.Context) (ok bool) {
	r.mu.Lock()
	r.flying, r.landed = r.changes, r.next
	r.changes, r.next = map[attemptKey]change{}, make(chan struct{})
	var listed line.Listed
	for key, c := range r.flying {
		if c.enters {
			listed.Enter = append(listed.Enter, key.id)
		} else {
			listed.Leave = append(listed.Leave, key.id)
		}
	}
	r.mu.Unlock()

	var err error
	if len(listed.Enter)+len(listed.Leave) > 0 {
		err = r.lines.List(ctx, r.queue, listed)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.logger.Debug("cannot note who waits", "queue", r.queue, "error", err)
		for key, c := range r.flying {
			if _, later := r.changes[key]; !later && c.enters == c.a.listed() {
				r.changes[key] = c
			}
		}
	}
	r.flying = nil
	close(r.landed) // also after an error: a start waits no longer, and the list is corrected later
	return err == nil
}

// rooms are the rooms of a server, by queue.
type rooms map[string]*room

func newRooms(lines *line.Lines, weights map[string]int, logger *slog.Logger) rooms {
	rs := rooms{}
	for queue := range weights {
		rs[queue] = newRoom(lines, queue, logger)
	}
	return rs
}

// of returns the room of the queue from which the task of an attempt is.
func (rs rooms) of(a *attempt) *room { return rs[a.queue] }

// run keeps the lists, and tells of answers, until ctx ends.
func (rs rooms) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, r := range rs {
		all.Go(func() { r.run(ctx) })
		all.Go(func() { r.answers.run(ctx) })
	}
}
