package asynqlimit

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// retryFull is about when a job is tried again that found max_in_flight reached.
const retryFull = 2 * time.Second

// fullLine begins the name of a line of jobs that wait for a place among those of
// their pattern that run in a process.
const fullLine = "!max_in_flight:"

// enterFlight gets one of the places of a job with max_in_flight. Waiting for it
// is like waiting for a permit, and jobs that wait longer have a line of their own.
func (j *job) enterFlight(ctx context.Context) error {
	r := j.needs.rule
	if r == nil || r.inFlight == nil {
		return nil
	}
	select {
	case r.inFlight <- struct{}{}:
		j.inFlight = true
		return nil
	default:
	}
	j.a.waitsFor(j.place(fullLine + r.Name))
	running, cancel := j.l.whileRunning(ctx)
	defer cancel()
	wait := r.Hold
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/4)
	}
	if wait > 0 && j.a.seat.toRoom([]string{fullLine + r.Name}, false) {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case r.inFlight <- struct{}{}:
			j.inFlight = true
			return nil
		case <-timer.C:
		case <-running.Done():
			return j.undecided(ctx, running.Err())
		}
	}
	j.a.decide(parks, j.place(fullLine+r.Name))
	return &ThrottledError{RetryAfter: retryFull, Err: fmt.Errorf("max_in_flight of %q is reached", r.Name)}
}

func (j *job) leaveFlight() {
	if j.inFlight {
		<-j.needs.rule.inFlight
		j.inFlight = false
	}
}

// fullRule returns the job whose max_in_flight the line waits for, or nil.
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
