package asynqlimit

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// ThrottledError says that a limit put an attempt off before it began, that the API told the job
// to try later, or that the job cannot run as things stand: then Err is a [*BlockedError]. It is
// not a failure: it does not use up a retry, not even on the last attempt.
type ThrottledError struct {
	Limiter    string        // which one; empty if the task has none
	RetryAfter time.Duration // how long until the task gets its permits, as far as is known
	Err        error         // why, if not because the limit is used up
}

// Error names the limiter, and says when the next try is and why the attempt was put off. For a
// blocked job it is the text of its BlockedError.
func (e *ThrottledError) Error() string {
	if blocked, ok := errors.AsType[*BlockedError](e.Err); ok {
		return strings.ToValidUTF8(blocked.Error(), "\uFFFD") // asynq stores no other text
	}
	s := "throttled"
	if e.Limiter != "" {
		s += fmt.Sprintf(" by limiter %q", e.Limiter)
	}
	s += fmt.Sprintf(", next try in about %v", e.RetryAfter.Round(time.Millisecond))
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Unwrap returns why the attempt was put off.
func (e *ThrottledError) Unwrap() error { return e.Err }

// WasPutOff reports whether the text, the last error of a task, is that of a [ThrottledError]
// whose task is not blocked. A handler's own error may begin with the same word.
func WasPutOff(text string) bool { return jobview.WasPutOff(text) }

// RetryAfterError is what [RetryAfter] returns.
type RetryAfterError struct {
	After time.Duration
}

// Error says after how long to try again.
func (e *RetryAfterError) Error() string {
	return fmt.Sprintf("the API said to try again after %v", e.After)
}

// minRetryAfter keeps a job from being tried again and again without a pause.
const minRetryAfter = 100 * time.Millisecond

// RetryAfter returns an error for handlers of jobs whose API said to try again after d, for
// example with 429 Too Many Requests. The limits of the job that pause_on_429 names stop for d
// (at most max_pause) in the whole fleet, and the job comes back afterwards. If the API then
// refuses the job again, and has refused no other job in between, the limits go on: only this job
// stays away, for twice as long each time (at most max_pause), and queues behind the others. It
// does not use up a retry, not even on the last attempt, until max_wait has passed since the
// job's first refusal: then it is a failure like any other. The error may be wrapped. Less than
// 100ms counts as 100ms.
func RetryAfter(d time.Duration) error { return &RetryAfterError{After: max(d, minRetryAfter)} }

// BlockReason is why a job cannot run as things stand: see [BlockedError].
type BlockReason = jobview.BlockReason

// The reasons of a [BlockedError]. Handlers may have reasons of their own.
const (
	NoHandler      BlockReason = "no_handler"       // this process has no handler for the type
	BadKey         BlockReason = "bad_key"          // the job has no usable value where a limit's key reads one
	BadShare       BlockReason = "bad_share"        // the same where a limit's share reads its tenant
	BadCost        BlockReason = "bad_cost"         // the same where the job's permits read its cost
	CostAboveLimit BlockReason = "cost_above_limit" // it costs more than the limit in Redis ever gives at once
	HostNotAllowed BlockReason = "host_not_allowed" // its first request goes to a host that http.allow_hosts does not allow
	UnknownField   BlockReason = "unknown_field"    // its payload has a field that the configuration does not read
	BadRequest     BlockReason = "bad_request"      // its payload describes no request that can be sent
)

// BlockedError says that a job cannot run as things stand: because of the configuration, of a
// limit, or because this process lacks something that another may have. It is not a failure: the
// job waits in a line without a limit, and goes on without further help when what blocks it is
// fixed.
type BlockedError struct {
	Reason BlockReason
	Err    error
	Fix    string // what to change
}

// Error says the reason, what went wrong, and what to change.
func (e *BlockedError) Error() string {
	s := fmt.Sprintf("blocked (%s): %v", e.Reason, e.Err)
	if e.Fix != "" {
		s += ": " + e.Fix
	}
	return s
}

// Unwrap makes errors.Is and errors.As see the cause.
func (e *BlockedError) Unwrap() error { return e.Err }

// Blocked returns an error, a [*BlockedError], for handlers of jobs that cannot run as things
// stand, for a reason that somebody can fix: for example, a credential is missing. All jobs of
// the type that are blocked for this reason wait in one line. One of them is tried from time to
// time. When it passes, the others follow. The reason is a word, such as missing_credential: anything in it but letters,
// digits, dots and dashes becomes an underscore.
func Blocked(reason string, err error) error {
	word := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || r == '.' || r == '-' {
			return r
		}
		return '_'
	}, strings.ToValidUTF8(reason, "_"))
	if name := line.Blocked + word + ":"; name == line.InFlight || name == line.MaxInFlight {
		word += "_" // those lines are for other things
	}
	return &BlockedError{Reason: BlockReason(word), Err: err}
}

// BlockedFor returns the reason in the text of a [BlockedError], and the rest of it.
func BlockedFor(text string) (reason BlockReason, rest string, ok bool) {
	return jobview.BlockedFor(text)
}

// asBlocked returns the *BlockedError in the error that ended an attempt, or nil. If the handler
// is an asynq.ServeMux itself, it may find no handler for the type.
func asBlocked(err error) *BlockedError {
	if blocked, ok := errors.AsType[*BlockedError](err); ok {
		return blocked
	}
	if errors.Is(err, asynq.ErrHandlerNotFound) {
		return &BlockedError{Reason: NoHandler, Err: err, Fix: "run a worker that has a handler for this type"}
	}
	return nil
}

// blockedByLimit returns a *BlockedError for an error of the throttle about something that it
// never grants, and nil for other errors.
func blockedByLimit(err error) *BlockedError {
	switch {
	case errors.Is(err, throttle.ErrExceedsRate):
		return &BlockedError{Reason: CostAboveLimit, Err: err, Fix: "raise the limit (throttle set NAME RATE --pin), or lower what the job costs"}
	case errors.Is(err, throttle.ErrInvalidName), errors.Is(err, throttle.ErrInvalidGroup):
		return &BlockedError{Reason: BadKey, Err: err, Fix: "correct the key of the limit, or the job"}
	}
	return nil
}

// isPutOff reports whether an attempt was put off, which is not a failure.
func isPutOff(err error) bool {
	_, throttled := errors.AsType[*ThrottledError](err)
	return throttled
}
