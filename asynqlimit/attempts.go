package asynqlimit

import (
	"context"
	"sync"
	"time"
)

// attempts are the attempts of one process, by task.
type attempts struct {
	mu   sync.Mutex
	all  map[attemptKey]*attempt
	back map[attemptKey]returned // tasks that went back to their queue lately
}

// returned is when a task went back to its queue, and since when it has competed for a slot: zero if it
// has not.
type returned struct{ at, since time.Time }

type attemptKey struct{ queue, id string }

func newAttempts() *attempts {
	return &attempts{all: map[attemptKey]*attempt{}, back: map[attemptKey]returned{}}
}

// put adds a task that was taken. If there still is an attempt of the same task, asynq has given
// that up: its lease had lapsed.
func (t *attempts) put(a *attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all[a.key()] = a
}

// takenAgain is for how long a process remembers a task that went back to its queue, in case the
// process takes the task again.
const takenAgain = 30 * time.Second

// wentBack notes that the task of an attempt goes back to its queue.
func (t *attempts) wentBack(a *attempt) {
	a.mu.Lock()
	since := a.competed
	a.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.back[a.key()] = returned{time.Now(), since}
}

// cameBack returns what is known of a task that is taken again soon after it went back.
func (t *attempts) cameBack(a *attempt) (r returned) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r = t.back[a.key()]; time.Since(r.at) > takenAgain {
		r = returned{}
	}
	delete(t.back, a.key())
	return r
}

func (t *attempts) get(queue, id string) *attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[attemptKey{queue, id}]
}

// drop removes an attempt that has ended both here and in asynq.
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

// awaitEnds waits until asynq has ended all attempts. (A handler that does not heed its context may still run.)
func (t *attempts) awaitEnds(ctx context.Context) {
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for !t.ended() {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
	}
}

func (t *attempts) ended() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.all {
		a.mu.Lock()
		ended := a.noted || a.phase == taken || !a.hasLease() // without a lease asynq has given it up
		a.mu.Unlock()
		if !ended {
			return false
		}
	}
	return true
}

const (
	// neverBegan is how long after it was taken an attempt counts as one that asynq never began.
	neverBegan = 5 * time.Second
	// forgotten is how long after its end an attempt is forgotten, because its task then belongs
	// to asynq alone: the rest of its lease, asynq's cut-off after that, and two runs of its
	// recoverer.
	forgotten = 3 * time.Minute
)

// sweep gives back the positions of attempts that asynq took and never began, and returns these
// attempts. It also returns those that are stranded. It forgets others that asynq never ended.
func (t *attempts) sweep(now time.Time) (idle, stranded []*attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, a := range t.all {
		a.mu.Lock()
		never := a.phase == taken && now.Sub(a.last) > neverBegan
		old := (a.over || a.phase == taken) && now.Sub(a.last) > forgotten
		strands := a.strandedNow(now)
		a.mu.Unlock()
		if never {
			a.position.leave()
			idle = append(idle, a)
		}
		switch {
		case strands:
			stranded = append(stranded, a)
		case old:
			delete(t.all, key)
		}
	}
	for key, r := range t.back {
		if now.Sub(r.at) > takenAgain {
			delete(t.back, key)
		}
	}
	return idle, stranded
}
