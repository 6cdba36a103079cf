package throttle

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/driver"
)

// Reservation is a place in a limiter or group, or the refusal of one. Whoever
// waits Delay by other means than Wait has used the permits, as far as the limit
// is concerned, and need do no more.
// It is for one goroutine, but Cancel may be called from any.
type Reservation struct {
	ticket *driver.Ticket
	back   func()        // the tenant is not charged for it; nil: nobody was
	refund func(n int64) // nor for so many permits of it
}

func reservation(t *driver.Ticket, err error) (*Reservation, error) {
	if err != nil {
		return nil, err
	}
	return &Reservation{ticket: t}, nil
}

// OK reports whether a place is held. It is false when the turn comes too late;
// then nothing is reserved.
func (r *Reservation) OK() bool { return r.ticket.OK() }

// Delay is how long it is from now until the turn comes; if the place was
// refused, how long it would have been when it was.
func (r *Reservation) Delay() time.Duration { return r.ticket.Delay() }

// Limiter is the name of the limiter that refused, or of the first of those
// in which a place is held.
func (r *Reservation) Limiter() string { return r.ticket.Limiter() }

// Wait waits until the turn comes. When it returns nil the permits may be used,
// now: a place that has grown stale since, or whose limit was changed, is
// exchanged for the next, ahead of later waiters, for as long as it takes. If
// ctx ends first the place is given back. The error is ErrExceedsDeadline if
// the next turn comes after ctx's deadline, or if nothing was reserved.
func (r *Reservation) Wait(ctx context.Context) error {
	err := r.ticket.Wait(ctx)
	if err != nil && r.back != nil {
		r.back()
	}
	return err
}

// Cancel gives the place back, so that the next in turn can have it, and waits
// up to a second until Redis knows. It does nothing once Wait has returned.
func (r *Reservation) Cancel() {
	if r.ticket.Cancel() && r.back != nil {
		r.back()
	}
}

// Release gives back n permits of each limiter that were not used, once Wait has returned
// nil: a call turned out to cost less than it had said. They come off the grant that they
// are of, so that others can have them at once, and for as long as it counts: unlike
// Limiter.Release, which does not know whose permits it is given. Those of a grant that
// counts no more are nobody's to give back: then nothing happens. Use one kind of
// Release for a limiter, not both: what Limiter.Release takes may be of this grant.
//
// More than are left of what was acquired, or a negative number, is ErrInvalidPermits, and
// changes nothing. If Redis gives no answer until ctx ends they may be back or count as
// used.
func (r *Reservation) Release(ctx context.Context, n int64) error {
	ns := make([]int64, len(r.ticket.Names()))
	for i := range ns {
		ns[i] = n
	}
	return r.ReleaseEach(ctx, ns...)
}

// ReleaseEach is Release with a number for each limiter, which may be zero.
func (r *Reservation) ReleaseEach(ctx context.Context, ns ...int64) error {
	names := r.ticket.Names()
	if len(ns) != len(names) {
		return &Error{Limiter: names[0], Err: ErrInvalidPermits, Detail: fmt.Sprintf("%d numbers for %d limiters", len(ns), len(names))}
	}
	bounded, err := releasable(names, ns)
	if err != nil || bounded == nil {
		return err
	}
	if !r.ticket.Released(bounded) {
		return &Error{Limiter: names[0], Err: ErrInvalidPermits, Detail: fmt.Sprintf("%d to release, which are more than are left of what was acquired", slices.Max(ns))}
	}
	counted, err := r.ticket.Release(ctx, bounded)
	if err == nil && counted && r.refund != nil {
		r.refund(bounded[0])
	}
	return err
}
