package worker

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/producer"
)

// ThrottledError says that a limit put an attempt off before it began, that the
// API did, or that the job cannot run as things stand: then Err is a
// *BlockedError. It is no failure: it uses up no retry, also on the last attempt.
type ThrottledError struct {
	Limiter    string        // which one; empty if the task has none
	RetryAfter time.Duration // from now until the task's turn, as far as known
	Err        error         // why, if not because the limit is used up

	parks bool      // the task waits in the limiter's line
	back  time.Time // when asynq brings it back by itself; settle sets it for those that park
}

func (e *ThrottledError) Error() string {
	if blocked, ok := errors.AsType[*BlockedError](e.Err); ok {
		return blocked.Error()
	}
	s := "throttled"
	if e.Limiter != "" {
		s += fmt.Sprintf(" by limiter %q", e.Limiter)
	}
	s += fmt.Sprintf(", next try in about %v", e.RetryAfter.Round(time.Millisecond))
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// isThrottled says whether the text is that of a ThrottledError whose task is not
// blocked. A handler's own error may begin with the same word.
func isThrottled(text string) bool {
	rest, ok := strings.CutPrefix(text, "throttled")
	if by, named := strings.CutPrefix(rest, " by limiter "); named {
		name, err := strconv.QuotedPrefix(by)
		if err != nil {
			return false
		}
		rest = by[len(name):]
	}
	rest, next := strings.CutPrefix(rest, ", next try in about ")
	wait, _, _ := strings.Cut(rest, ": ")
	_, err := time.ParseDuration(wait)
	return ok && next && err == nil
}

// alone is for a task that waits outside of any line: asynq brings it back, and it
// queues behind the others. asynq cuts seconds off, which would be too early.
func (e *ThrottledError) alone() *ThrottledError {
	e.back = time.Now().Add(e.RetryAfter).Truncate(time.Second).Add(time.Second)
	return e
}

// Unwrap returns why the attempt was put off.
func (e *ThrottledError) Unwrap() error { return e.Err }

// RetryAfterError is what RetryAfter returns.
type RetryAfterError struct {
	After time.Duration
}

func (e *RetryAfterError) Error() string {
	return fmt.Sprintf("the API said to try again after %v", e.After)
}

// RetryAfter returns an error for handlers of jobs whose API said to try again
// after d: 429 Too Many Requests, say. The limits of the job that pause_on_429
// names stop for d (at most max_pause) in the whole fleet, and the job comes back
// afterwards. If it is then refused again, and no other job was meanwhile, the
// limits go on: the job alone stays away, for twice as long each time (at most
// max_pause), and queues behind the others. It burns no retry, also on the last
// attempt. Wrapping is fine, and less than 100ms counts as 100ms.
func RetryAfter(d time.Duration) error { return &RetryAfterError{After: max(d, minRetryAfter)} }

const (
	// minRetryAfter keeps a job from going in circles.
	minRetryAfter = 100 * time.Millisecond
	// fallback is how long after a parked task's turn asynq brings it back by
	// itself. It is only for the case that no worker's puller does.
	fallback = 30 * time.Second
	// retryUndecided is when to try again if Redis gave no answer.
	retryUndecided = time.Second
	// retryFull is when to try again if max_in_flight is reached.
	retryFull = 2 * time.Second
)

// permanent marks an error that no retry can mend: asynq archives the task.
func permanent(err error) error { return fmt.Errorf("%w: %w", err, asynq.SkipRetry) }

// isFailure tells asynq which errors burn a retry.
func isFailure(err error) bool {
	_, throttled := errors.AsType[*ThrottledError](err)
	return err != nil && !throttled
}

// retryDelay tells asynq when a task comes back by itself.
func retryDelay(retried int, err error, task *asynq.Task) time.Duration {
	if errors.Is(err, asynq.ErrLeaseExpired) {
		return 0 // its worker died at least a minute ago: long enough
	}
	if t, ok := errors.AsType[*ThrottledError](err); ok {
		switch {
		case !t.back.IsZero():
			return time.Until(t.back)
		case t.parks:
			return t.RetryAfter + fallback
		}
		return t.RetryAfter
	}
	if most, ok := producer.MaxRetry(task.Headers()); ok && retried >= most {
		return 0 // the last attempt panicked or timed out: it comes back to be archived
	}
	return asynq.DefaultRetryDelayFunc(retried, err, task)
}
