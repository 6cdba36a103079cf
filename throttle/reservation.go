package throttle

import (
	"context"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/driver"
)

// Reservation is a place in a limiter or group, or the refusal of one. Whoever
// waits Delay by other means than Wait has used the permits, as far as the limit
// is concerned, and need do no more.
// It is for one goroutine, but Cancel may be called from any.
type Reservation struct {
	ticket *driver.Ticket
	back   func() // the tenant is not charged for it; nil: nobody was
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
