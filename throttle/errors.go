package throttle

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// The errors of this package, for errors.Is. Those that concern a limiter
// come wrapped in an *Error that names it.
var (
	// ErrNotInitialized: the limiter has no rate in Redis. Set one, or get the
	// limiter with LimiterWithRate.
	ErrNotInitialized = errors.New("not initialized: it has no rate in Redis")
	// ErrExceedsRate: more permits were asked for than the rate ever gives at once.
	ErrExceedsRate = errors.New("more permits than the rate allows")
	// ErrExceedsDeadline: the turn would come after the context's deadline.
	// Error.Wait says how long it would have been.
	ErrExceedsDeadline = errors.New("the turn comes after the deadline")
	// ErrInvalidPermits: fewer than one permit was asked for.
	ErrInvalidPermits = errors.New("invalid number of permits")
	// ErrInvalidName: the name is empty, too long, has control characters, or
	// braces that would spread its keys over Redis Cluster slots.
	ErrInvalidName = errors.New("invalid limiter name")
	// ErrInvalidRate: see Rate.Validate. Also what anybody wrote into Redis in
	// place of a limiter's configuration: SetRate, UpdateRate and ApplyRate
	// repair that, and Delete.
	ErrInvalidRate = errors.New("invalid rate")
	// ErrInvalidGroup: no members, one twice, members of several Clients, or
	// members whose keys lie in different Redis Cluster slots.
	ErrInvalidGroup = errors.New("invalid group")
	// ErrWrongType: a key of the limiter holds something that is not the limiter's.
	ErrWrongType = errors.New("a key of the limiter holds data of another type")
	// ErrClosed: the Client was closed.
	ErrClosed = errors.New("client closed")
)

// Error is a failure that concerns one limiter, or the first of a group.
type Error struct {
	Limiter string // the limiter's name
	Err     error  // what went wrong: one of this package's errors, Redis's or the context's
	Detail  string // figures, where there are any

	// Wait is how long after the refusal the turn would have come, at the
	// earliest: to ask again sooner, for as long, is of no use unless others
	// give up. Only with ErrExceedsDeadline; zero if it is not known.
	Wait time.Duration
}

func (e *Error) Error() string {
	s := "throttle: limiter " + quote(e.Limiter) + ": " + e.Err.Error()
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s
}

// Unwrap makes errors.Is and errors.As see the cause.
func (e *Error) Unwrap() error { return e.Err }

// badField says that a limiter's configuration in Redis makes no sense.
func badField(field string) error {
	return fmt.Errorf("%w: its %s in Redis makes no sense: set the rate anew, or delete the limiter", ErrInvalidRate, clip(field))
}

func quote(name string) string { return strconv.Quote(name) }

func exceeds(limiter string, n, rate int64) error {
	return &Error{Limiter: limiter, Err: ErrExceedsRate, Detail: fmt.Sprintf("%d of at most %d", n, rate)}
}

// tooLate says that the turn comes after the deadline, and how long it is until
// then; zero if that is not known.
func tooLate(limiter string, wait time.Duration) error {
	err := &Error{Limiter: limiter, Err: ErrExceedsDeadline, Wait: wait}
	if wait > 0 {
		err.Detail = fmt.Sprintf("in %v", wait)
	}
	return err
}
