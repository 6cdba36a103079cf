package asynqlimit

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// max_wait is how long an API may tell a job to try later, from the job's first refusal on. What
// the job waits for otherwise does not count: limits, pauses, what somebody has to fix. So the
// time of the first refusal is moved on by that wait.

// movedOn returns the time of a first refusal, in seconds after 1970, moved on by what the task
// has waited for other things since; 0 if there was no refusal. It is never after now.
func movedOn(refused int64, waited time.Duration, now int64) int64 {
	if refused == 0 {
		return 0
	}
	return max(min(refused+int64(math.Round(waited.Seconds())), now), refused)
}

// refusedFirst is when the task was first refused, moved on by what it has waited in this
// process: until its handler began, and for its permits within the handler; if the handler has
// not begun, until now.
func (j *job) refusedFirst(now time.Time) int64 {
	waited := now.Sub(j.a.came)
	if !j.handling.IsZero() {
		waited = j.handling.Sub(j.a.came) + j.waited - j.before
	}
	return movedOn(j.a.wait.Refused, waited, now.Unix())
}

// refused does what the API's answer asks for. The first time that the API refuses a task, the
// limits that it concerns pause, because the API means everybody. If the API refuses the task
// again, and has refused no other in between, the API means this task: only this task stays away,
// and then queues behind the others. After max_wait it is a failure.
func (j *job) refused(ctx context.Context, after *RetryAfterError, err error) error {
	j.tally(func(t *tally) { t.refused.Add(1) })
	now := time.Now()
	first := j.refusedFirst(now)
	if first == 0 {
		first = now.Unix()
	}
	if refused := time.Duration(now.Unix()-first) * time.Second; refused > j.needs.maxWait() {
		j.a.refusedTooLong()
		return fmt.Errorf("refused by its API for %v, without its waits for other things: %v", refused, err)
	}
	d := min(after.After, j.needs.maxPause())
	alone := func(d time.Duration, limiter string) error {
		j.a.decide(parks, line.Parking{Away: d, Cost: 1, Refused: first, Since: j.a.since})
		return &ThrottledError{Limiter: limiter, RetryAfter: d, Err: after}
	}
	if len(j.needs.paused()) == 0 {
		return alone(max(d, minRetryAfter), "")
	}
	limiter := j.limiter[j.needs.paused()[0]].Name()
	pausing, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	r, rerr := j.l.lines.Refused(pausing, limiter, j.a.queue, j.a.id, max(time.Hour, 2*j.needs.maxPause()))
	if rerr != nil {
		j.l.logger.Warn("cannot note that a task was refused", "task_id", j.a.id, "error", rerr)
	}
	if r.Times > 1 && !r.Others {
		return alone(stayAway(max(after.After, minRetryAfter), j.needs.maxPause(), r.Times), limiter)
	}
	for _, i := range j.needs.paused() {
		if d == 0 {
			break // the limit adapts, and has been told
		}
		if perr := j.pause(pausing, i, d); perr != nil {
			j.l.logger.Warn("cannot pause a limit", "task_id", j.a.id, "error", perr)
		}
	}
	p := j.parkingIn(limiter)
	p.Refused = first
	if r.Times > 1 {
		p.Since = 0 // behind the others
	}
	j.a.decide(parks, p)
	return &ThrottledError{Limiter: limiter, RetryAfter: d, Err: after}
}

// pause pauses a limiter of the job. This process hears of the pause, perhaps before it is done, and is to know that it is its own.
func (j *job) pause(ctx context.Context, i int, d time.Duration) error {
	defer j.l.events.pausing(j.limiter[i].Name())()
	err := j.limiter[i].Pause(ctx, d)
	if err == nil {
		j.countsOf(i).paused.Add(1)
		j.l.pausedBy(j, j.limiter[i].Name(), d)
	}
	return err
}

// settleTimeout bounds how long it takes to note things in Redis when an attempt is over. The
// task's own time may be over by then.
const settleTimeout = 2 * time.Second
