package throttle

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
	"github.com/jobthrottle/jobthrottle/throttle/internal/slots"
)

// The errors of this package, for errors.Is. Those that concern a limiter come wrapped in an
// [*Error] that names it.
var (
	// ErrNotInitialized: the limiter has no rate in Redis. Set one, or get the
	// limiter with LimiterWithRate.
	ErrNotInitialized = line.ErrNotInitialized
	// ErrExceedsRate: more permits were asked for than the rate ever gives at once.
	ErrExceedsRate = line.ErrExceedsRate
	// ErrExceedsDeadline: the permits would come after the context's deadline. Error.Wait says
	// how long the wait would have been.
	ErrExceedsDeadline = errors.New("the turn comes after the deadline")
	// ErrInvalidPermits: fewer than one permit was asked for, a negative number or more than is
	// left was to be released, or there is not one number for each member of a group.
	ErrInvalidPermits = errors.New("invalid number of permits")
	// ErrInvalidName: the name is empty, too long, has control characters, or has braces that
	// would spread its keys over Redis Cluster slots.
	ErrInvalidName = errors.New("invalid limiter name")
	// ErrInvalidRate: see Rate.Validate. Also: the configuration of the limiter in Redis makes no
	// sense, because somebody overwrote it. SetRate, UpdateRate, ApplyRate and Delete repair
	// that.
	ErrInvalidRate = script.ErrInvalidRate
	// ErrInvalidGroup: no members, one twice, one that asks for a tenant, members of several
	// Clients, or members whose keys lie in different Redis Cluster slots.
	ErrInvalidGroup = errors.New("invalid group")
	// ErrInvalidTenant: the name of a tenant is empty, longer than 128 bytes, not valid
	// UTF-8, or has control characters.
	ErrInvalidTenant = errors.New("invalid tenant")
	// ErrInvalidWeight: a weight is not a number from 0.001 to 1,000,000.
	ErrInvalidWeight = errors.New("invalid weight")
	// ErrPerClient: each Client has a limit of its own, so tenants cannot share it.
	ErrPerClient = script.ErrPerClient
	// ErrWrongType: a key of the limiter holds something that is not the limiter's. SetRate, UpdateRate,
	// ApplyRate and Delete repair that, unless it is the key of the limiter's name.
	ErrWrongType = script.ErrWrongType
	// ErrInvalidSlots: see Slots. Also: the configuration of the limit in flight in Redis makes
	// no sense, because somebody overwrote it, or its name is that of a rate limit.
	ErrInvalidSlots = errors.New("invalid limit in flight")
	// ErrInvalidID: the id of a holder is empty, or longer than 1024 bytes.
	ErrInvalidID = errors.New("invalid id of a holder")
	// ErrLeaseEnded is the cause with which a Lease's context ends if its slot is lost, or could
	// be lost at any time.
	ErrLeaseEnded = slots.ErrEnded
	// ErrReleased is the cause if the Lease was released.
	ErrReleased = slots.ErrReleased
	// ErrReentered is the cause if another caller has come with the same id. A wait can end with
	// it, too.
	ErrReentered = slots.ErrReentered
	// ErrClosed: the Client was closed.
	ErrClosed = line.ErrClosed
)

// Error is a failure that concerns one limiter, or the first of a group.
type Error struct {
	Limiter string // the limiter's name
	Err     error  // what went wrong: one of this package's errors, Redis's or the context's
	Detail  string // figures, if there are any

	// Wait is how long after the denial the permits would have come, at the earliest. Asking
	// again is useless until less than the new request's own longest wait is left of that, unless
	// others give up. Only with ErrExceedsDeadline; zero if it is not known.
	Wait time.Duration
}

// Error names the limiter, says what went wrong, and adds the figures if there are any.
func (e *Error) Error() string {
	s := "throttle: limiter " + quote(e.Limiter) + ": " + e.Err.Error()
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s
}

// Unwrap makes [errors.Is] and [errors.As] see the cause.
func (e *Error) Unwrap() error { return e.Err }

func quote(name string) string { return strconv.Quote(name) }

// failure is the error for an answer that is an error or a refusal.
func failure(limiter string, a line.Answer) error {
	err := &Error{Limiter: limiter, Err: a.Err}
	switch {
	case a.Denied:
		err.Err, err.Wait = ErrExceedsDeadline, a.Wait
		if a.Wait > 0 {
			err.Detail = fmt.Sprintf("in %v", a.Wait)
		}
	case a.Err == ErrExceedsRate:
		err.Detail = fmt.Sprintf("%d of at most %d", a.N, a.Rate)
	}
	return err
}
