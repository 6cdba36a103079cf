package asynqlimit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// room keeps the list in Redis of the tasks that wait in this process. If the
// process is killed, asynq's recoverer finds their leases lapsed; those that are
// listed have not begun, and go back to their queues without a failure. Changes
// go to Redis together: those that come while a call is under way make up the next.
type room struct {
	lines  *line.Lines
	logger *slog.Logger
	wake   chan struct{}

	mu     sync.Mutex
	listed map[attemptKey]bool
	enters map[attemptKey]bool
	leaves map[attemptKey]bool
	flying map[attemptKey]bool // entering, in the call that is under way
	next   chan struct{}       // closed when what is noted now is in Redis
}

func newRoom(lines *line.Lines, logger *slog.Logger) *room {
	return &room{
		lines: lines, logger: logger, wake: make(chan struct{}, 1),
		listed: map[attemptKey]bool{}, enters: map[attemptKey]bool{}, leaves: map[attemptKey]bool{}, flying: map[attemptKey]bool{}, next: make(chan struct{}),
	}
}

// isListed notes a task that was listed when it was taken.
func (r *room) isListed(key attemptKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listed[key] = true
	delete(r.leaves, key)
}

// enter lists a task, soon.
func (r *room) enter(key attemptKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.leaves, key)
	if r.listed[key] || r.enters[key] {
		return
	}
	r.enters[key] = true
	r.nudge()
}

// leaveLasts is how long a start waits for Redis to know that the task does not
// wait any more. One that was started is worth more than a list that is exact.
const leaveLasts = time.Second

// leaving takes a task off the list, and returns what is closed when Redis knows;
// nil if the task is not listed.
func (r *room) leaving(key attemptKey) (done <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.enters, key)
	if !r.listed[key] {
		return nil
	}
	r.leaves[key] = true
	r.nudge()
	return r.next
}

// leave waits until that is done.
func (r *room) leave(ctx context.Context, key attemptKey) { left(ctx, r.leaving(key)) }

func left(ctx context.Context, done <-chan struct{}) {
	if done == nil {
		return
	}
	timer := time.NewTimer(leaveLasts)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// left notes a task that a script has taken off the list.
func (r *room) left(key attemptKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.listed, key)
	delete(r.enters, key)
	delete(r.leaves, key)
	if r.flying[key] { // it may come to be listed after the script
		r.listed[key], r.leaves[key] = true, true
		r.nudge()
	}
}

func (r *room) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run keeps the list until ctx ends.
func (r *room) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
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

// flush brings to Redis what was noted, and reports whether that is done.
func (r *room) flush(ctx context.Context) bool {
	type change struct{ ids, gone []string }
	r.mu.Lock()
	changes := map[string]*change{}
	of := func(queue string) *change {
		if changes[queue] == nil {
			changes[queue] = &change{}
		}
		return changes[queue]
	}
	for key := range r.enters {
		of(key.queue).ids = append(of(key.queue).ids, key.id)
		r.listed[key], r.flying[key] = true, true
	}
	for key := range r.leaves {
		of(key.queue).gone = append(of(key.queue).gone, key.id)
		delete(r.listed, key)
	}
	clear(r.enters)
	clear(r.leaves)
	done := r.next
	r.next = make(chan struct{})
	r.mu.Unlock()

	ok := true
	for queue, c := range changes {
		if err := r.lines.List(ctx, queue, c.ids, c.gone); err != nil {
			ok = false
			r.logger.Debug("cannot list who waits", "queue", queue, "error", err)
			r.again(queue, c.ids, c.gone)
		}
	}
	r.mu.Lock()
	clear(r.flying)
	r.mu.Unlock()
	close(done) // also if it failed: a start waits no longer, and the list is mended later
	return ok
}

func (r *room) again(queue string, ids, gone []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if key := (attemptKey{queue, id}); r.listed[key] {
			delete(r.listed, key)
			r.enters[key] = true
		}
	}
	for _, id := range gone {
		key := attemptKey{queue, id}
		r.listed[key], r.leaves[key] = true, true
	}
}
