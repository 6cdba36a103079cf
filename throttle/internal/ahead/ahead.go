// Package ahead is how httplimit reserves permits of the limits of package throttle. That package imports httplimit, so
// httplimit cannot import it.
package ahead

import (
	"context"
	"time"
)

// Reservation is a throttle.Reservation.
type Reservation interface {
	// Delay is how long it is until the permits are due.
	Delay() time.Duration
	// Near waits until the permits are due in early or less, and does not take them.
	Near(ctx context.Context, early time.Duration) error
	// Wait waits until the permits are due and takes them. If they have become too old, it gets others.
	Wait(ctx context.Context) error
	// Cancel gives permits back that were not taken.
	Cancel()
	// Release gives back n of the permits that were taken and then not used.
	Release(ctx context.Context, n int64) error
}

// Reserver returns a function that reserves a permit of a limit, however far ahead it is due. It is nil if the limit is none
// of package throttle, or one whose permits cannot be reserved in this way. What embeds a limit may have an Acquire of its
// own, so it is not the limit that it embeds.
//
// Package throttle sets it.
var Reserver = func(limit any) func(context.Context) (Reservation, error) { return nil }
