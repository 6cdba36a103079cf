package asynqlimit

import (
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// ThrottledError says that a limit put an attempt off before it began, that the
// API did, or that the job cannot run as things stand: then Err is a
// *BlockedError. It is no failure: it does not use up a retry, also on the last
// attempt.
type ThrottledError struct {
	Limiter    string        // which one; empty if the task has none
	RetryAfter time.Duration // from now until the task's turn, as far as known
	Err        error         // why, if not because the limit is used up
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

// Unwrap returns why the attempt was put off.
func (e *ThrottledError) Unwrap() error { return e.Err }

// WasPutOff says whether the text, the last error of a task, is that of a
// ThrottledError whose task is not blocked. A handler's own error may begin with
// the same word.
func WasPutOff(text string) bool { return jobview.WasPutOff(text) }

// RetryAfterError is what RetryAfter returns.
type RetryAfterError struct {
	After time.Duration
}

func (e *RetryAfterError) Error() string {
	return fmt.Sprintf("the API said to try again after %v", e.After)
}

// minRetryAfter keeps a job from going in circles.
const minRetryAfter = 100 * time.Millisecond

// RetryAfter returns an error for handlers of jobs whose API said to try again
// after d: 429 Too Many Requests, say. The limits of the job that pause_on_429
// names stop for d (at most max_pause) in the whole fleet, and the job comes back
// afterwards. If it is then refused again, and no other job was meanwhile, the
// limits go on: the job alone stays away, for twice as long each time (at most
// max_pause), and queues behind the others. It uses up no retry, also on the last
// attempt, until max_wait has passed since the job's first: then it is a failure
// like any other. Wrapping is fine, and less than 100ms counts as 100ms.
func RetryAfter(d time.Duration) error { return &RetryAfterError{After: max(d, minRetryAfter)} }

// BlockReason is why a job cannot run as things stand.
type BlockReason = jobview.BlockReason

// The reasons of a BlockedError. Handlers may have reasons of their own.
const (
	NoHandler      BlockReason = "no_handler"       // this process has none for the type
	BadKey         BlockReason = "bad_key"          // the job has no usable value where a limit's key reads one
	BadShare       BlockReason = "bad_share"        // nor where a limit's share reads its tenant
	BadCost        BlockReason = "bad_cost"         // nor where the job's permits do
	CostAboveLimit BlockReason = "cost_above_limit" // it costs more than a limit, as it is in Redis, ever gives at once
	HostNotAllowed BlockReason = "host_not_allowed" // its first request goes where http.allow_hosts does not let it
	UnknownField   BlockReason = "unknown_field"    // its payload has a field that the configuration does not read
)

// BlockedError says that a job cannot run as things stand: because of the
// configuration, of a limit, or of what this process does not know and another
// may. It is no failure: the job waits, in no limit's line, and goes on by itself
// when what blocks it is mended.
type BlockedError struct {
	Reason BlockReason
	Err    error
	Mend   string // what to change
}

func (e *BlockedError) Error() string {
	s := fmt.Sprintf("blocked (%s): %v", e.Reason, e.Err)
	if e.Mend != "" {
		s += ": " + e.Mend
	}
	return s
}

// Unwrap makes errors.Is and errors.As see the cause.
func (e *BlockedError) Unwrap() error { return e.Err }

// Blocked returns an error for handlers of jobs that cannot run as things stand,
// for a reason that somebody can mend: a credential that is missing, say. All
// jobs of the type that are blocked for this reason wait in one line. One of them
// is tried now and then, and when it passes the others follow.
func Blocked(reason string, err error) error {
	return &BlockedError{Reason: BlockReason(reason), Err: err}
}

// BlockedFor returns the reason in the text of a BlockedError, and the rest of it.
func BlockedFor(text string) (reason BlockReason, rest string, ok bool) {
	return jobview.BlockedFor(text)
}

// asBlocked returns the *BlockedError in what an attempt ended with, or nil.
// Handlers that are themselves an asynq.ServeMux may have none for the type.
func asBlocked(err error) *BlockedError {
	if blocked, ok := errors.AsType[*BlockedError](err); ok {
		return blocked
	}
	if errors.Is(err, asynq.ErrHandlerNotFound) {
		return &BlockedError{Reason: NoHandler, Err: err, Mend: "run a worker that has a handler for this type"}
	}
	return nil
}

// blockedByLimit turns what the throttle never grants into a *BlockedError. It
// returns nil for other errors.
func blockedByLimit(err error) *BlockedError {
	switch {
	case errors.Is(err, throttle.ErrExceedsRate):
		return &BlockedError{Reason: CostAboveLimit, Err: err, Mend: "raise the limit (throttle set NAME RATE --pin), or lower what the job costs"}
	case errors.Is(err, throttle.ErrInvalidName), errors.Is(err, throttle.ErrInvalidGroup):
		return &BlockedError{Reason: BadKey, Err: err, Mend: "correct the key of the limit, or the job"}
	}
	return nil
}

// isPutOff says whether an attempt was put off, which is no failure.
func isPutOff(err error) bool {
	_, throttled := errors.AsType[*ThrottledError](err)
	return throttled
}
