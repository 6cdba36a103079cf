package asynqlimit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// retryFull is about how long after it found max_in_flight reached a job is tried again.
const retryFull = 2 * time.Second

// fullLine begins the name of the line for jobs that found max_in_flight reached.
const fullLine = line.MaxInFlight

// enterFlight waits until the job's max_in_flight allows it to run: in the room for as long as its hold, and then in a line
// for that. Meanwhile its permits are for others.
func (j *job) enterFlight(ctx context.Context) error {
	r := j.needs.rule
	if r == nil || r.inFlight == nil {
		return nil
	}
	name, near := fullLine+r.Name, j.a.wait.State.Near()
	if !near && !j.acquires { // it comes behind those in line for its permits
		if err := j.hold(ctx); err != nil {
			return err
		}
	}
	running, cancel := j.l.whileRunning(ctx)
	defer cancel()
	j.a.inTurn(running)
	called := j.a.wait.State == line.Called && j.a.wait.Line == name
	if j.a.wait.State != line.Back && !called {
		switch queues, err := j.queuesFor(running, name, j.a.since); {
		case err != nil:
			return j.undecided(ctx, err)
		case queues:
			return j.full(r)
		}
	}
	select {
	case r.inFlight <- struct{}{}:
		j.entered(r)
		return nil
	default:
	}
	j.giveUp() // others get its permits meanwhile
	if !called {
		j.l.caller.answered(j.a)
	}
	j.a.waitsFor(j.parkingIn(name))
	wait, most := r.Hold, j.mayWait(ctx)
	if near {
		wait = max(wait, lead+slack)
	}
	if wait = min(wait, most); wait <= 0 || !j.a.position.toRoom([]string{name}, near, false) {
		return j.full(r)
	}
	j.a.ask() // those behind it have no reason to wait for it
	within, leave := context.WithTimeout(running, most)
	defer leave()
	defer j.l.caller.waitsHere(probeKey{j.a.queue, name}, j.a.since, wait, most, leave)()
	select {
	case r.inFlight <- struct{}{}:
		j.entered(r)
		return nil
	case <-within.Done():
	}
	if running.Err() != nil {
		return j.undecided(ctx, running.Err())
	}
	return j.full(r)
}

// entered notes that the task counts as in flight. If it was called from its line for that, it
// does not count as called any more.
func (j *job) entered(r *rule) {
	j.inFlight = true
	if j.a.wait.Line == fullLine+r.Name {
		j.l.caller.answered(j.a)
	}
}

// full parks the task in the line for max_in_flight.
func (j *job) full(r *rule) error {
	j.a.decide(parks, j.parkingIn(fullLine+r.Name))
	return &ThrottledError{RetryAfter: retryFull, Err: fmt.Errorf("max_in_flight of %q is reached", r.Name)}
}

// leaveFlight lets the next in line run.
func (j *job) leaveFlight() {
	if !j.inFlight {
		return
	}
	<-j.needs.rule.inFlight
	j.inFlight = false
	j.l.caller.ended(fullLine + j.needs.rule.Name)
}

// fullRule returns the rule whose max_in_flight the tasks of the line wait for, or nil.
func (l *Limits) fullRule(name string) *rule {
	pattern, ok := strings.CutPrefix(name, fullLine)
	if !ok {
		return nil
	}
	for _, r := range l.rules.all {
		if r.Name == pattern && r.inFlight != nil {
			return r
		}
	}
	return nil
}
