package throttle

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/driver"
)

// Reservation is permits that are reserved in a [Limiter] or [Group], or the refusal to reserve
// them. If you sleep for [Reservation.Delay] yourself and do not call [Reservation.Wait], the
// permits count as used. A Reservation is for one goroutine, but [Reservation.Cancel] may be
// called from any.
type Reservation struct {
	ticket *driver.Ticket
	back   func()        // takes the charge off the tenant; nil: no tenant was charged
	refund func(n int64) // takes the charge for n of the permits off the tenant
}

func reservation(t *driver.Ticket, err error) (*Reservation, error) {
	if err != nil {
		return nil, err
	}
	return &Reservation{ticket: t}, nil
}

// OK reports whether the permits are reserved. It is false when they would come too late; then
// nothing is reserved.
func (r *Reservation) OK() bool { return r.ticket.OK() }

// Delay is how long it is from now until the permits are due. While they are being exchanged because
// the limit was changed or paused, it is only a guess. If they were refused, it is how long that would
// have been at the time of the refusal.
func (r *Reservation) Delay() time.Duration { return r.ticket.Delay() }

// Limiter is the name of the limiter that refused, or of the first limiter in which the permits
// are reserved.
func (r *Reservation) Limiter() string { return r.ticket.Limiter() }

// Wait waits until the permits are due. When it returns nil they may be used, now. A reservation
// that has become too old since, or whose limit was changed or paused, is exchanged for the next one, ahead
// of later waiters, for as long as necessary. While Wait waits, the permits may get another time:
// an earlier one, or a later one up to ctx's deadline. If ctx ends first, the reservation is given back. The error is
// [ErrExceedsDeadline] if the next one is due after ctx's deadline, or if nothing was reserved. Once Wait has returned nil, it
// does so again, at once.
func (r *Reservation) Wait(ctx context.Context) error {
	err := r.ticket.Wait(ctx)
	if err != nil && r.back != nil {
		r.back()
	}
	return err
}

// Near waits until the permits are due in early or less, and does not take them: call [Reservation.Wait] for that, at once.
// So you can prepare in time what you need besides the permits, such as a connection or a free worker. While Near waits, the
// permits may get another time. It is earlier if others give permits back. It is later, but within the maxWait of the
// reservation, if the limit is or was changed or paused, or if a caller that asked before in this process came too late for
// its own permits. The errors are those of Wait. After an error nothing is reserved.
func (r *Reservation) Near(ctx context.Context, early time.Duration) error {
	err := r.ticket.Near(ctx, early)
	if err != nil && r.back != nil {
		r.back()
	}
	return err
}

// Cancel gives the reservation back, so that the next in line can have it, and waits up to a
// second until Redis has it. It does nothing once Wait has returned.
func (r *Reservation) Cancel() {
	if r.ticket.Cancel() && r.back != nil {
		r.back()
	}
}

// Release gives back n permits of each limiter that were not used, after Wait has returned nil:
// for example, a call turned out to cost less than it had said. They come off the grant that they
// belong to, so others can have them at once, and for as long as that grant counts.
// ([Limiter.Release] does not know whose permits it is given.) Nobody can give back permits of a
// grant that no longer counts: then nothing happens. Use one kind of Release for a limiter, not
// both: what Limiter.Release takes may belong to this grant.
//
// If n is more than is left of what was acquired, or negative, the error is [ErrInvalidPermits],
// and nothing changes. If Redis gives no answer until ctx ends, the permits may be back or count
// as used.
func (r *Reservation) Release(ctx context.Context, n int64) error {
	ns := make([]int64, len(r.ticket.Names()))
	for i := range ns {
		ns[i] = n
	}
	return r.ReleaseEach(ctx, ns...)
}

// ReleaseEach is [Reservation.Release] with a number for each limiter, which may be zero. If
// there is not one number for each limiter, the error is [ErrInvalidPermits].
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
