package asynqlimit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// room takes tasks off the list in Redis of those that wait in a process. The
// script that takes a task from its queue lists it. It is off the list when it
// begins to run, or its attempt has ended: the scripts that park it or give it
// back see to that themselves. If the process is killed, asynq's recoverer finds
// the leases of its tasks lapsed. Those that are listed have not begun, and go
// back to their queues without a failure.
//
// Changes go to Redis together: those that come while a call is under way make up
// the next.
type room struct {
	lines  *line.Lines
	logger *slog.Logger
	wake   chan struct{}

	mu     sync.Mutex
	leaves map[attemptKey]bool
	next   chan struct{} // closed when what is noted now is in Redis
}

func newRoom(lines *line.Lines, logger *slog.Logger) *room {
	return &room{lines: lines, logger: logger, wake: make(chan struct{}, 1), leaves: map[attemptKey]bool{}, next: make(chan struct{})}
}

// entered notes a task that is listed, perhaps once more.
func (r *room) entered(key attemptKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.leaves, key)
}

// leaving takes the task of an attempt off the list, soon, and returns what is
// closed when that is done; nil if it is off the list already.
func (r *room) leaving(a *attempt) (done <-chan struct{}) {
	if !a.unlist() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaves[attemptKey{a.queue, a.id}] = true
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return r.next
}

// leaveLasts is how long a start waits for Redis to know that the task does not
// wait any more. One that was started is worth more than a list that is exact.
const leaveLasts = time.Second

// leave takes the task of an attempt off the list, and waits until that is done.
func (r *room) leave(ctx context.Context, a *attempt) {
	done := r.leaving(a)
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

// run keeps the list until ctx ends.
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

// flush brings to Redis what was noted, and reports whether that is done.
func (r *room) flush(ctx context.Context) (ok bool) {
	r.mu.Lock()
	gone, done := map[string][]string{}, r.next
	for key := range r.leaves {
		gone[key.queue] = append(gone[key.queue], key.id)
	}
	clear(r.leaves)
	r.next = make(chan struct{})
	r.mu.Unlock()

	defer close(done) // also if it failed: a start waits no longer, and the list is mended later
	ok = true
	for queue, ids := range gone {
		if err := r.lines.Unlist(ctx, queue, ids); err != nil {
			ok = false
			r.logger.Debug("cannot take off the list who waits no more", "queue", queue, "error", err)
			r.again(queue, ids)
		}
	}
	return ok
}

func (r *room) again(queue string, ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		r.leaves[attemptKey{queue, id}] = true
	}
}
