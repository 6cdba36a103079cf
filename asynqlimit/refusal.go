package asynqlimit

import (
	"math"
	"time"
)

// max_wait is for how long an API may tell a job to try later, from the job's first
// refusal on. What the job waits for otherwise does not count: limits, pauses, what
// somebody has to mend. The time of the first refusal is moved on by it.

// movedOn is a first refusal, in seconds after 1970, of a task that has waited for
// something else since; 0 if there was none. It is never after now.
func movedOn(refused int64, waited time.Duration, now int64) int64 {
	if refused == 0 {
		return 0
	}
	return max(min(refused+int64(math.Round(waited.Seconds())), now), refused)
}

// refusedFirst is when the task was first refused, moved on by what it has waited in
// this process until now, or until its handler began, and in that for its permits.
func (j *job) refusedFirst(now time.Time) int64 {
	waited := now.Sub(j.a.came)
	if !j.handling.IsZero() {
		waited = j.handling.Sub(j.a.came) + j.waited - j.before
	}
	return movedOn(j.a.wait.Refused, waited, now.Unix())
}
