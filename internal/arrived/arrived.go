// Package arrived tells a caller of the throttle when its request stands in line:
// who asks next, on another goroutine, stands behind it. A reservation itself only
// returns with the answer.
package arrived

import (
	"context"
	"sync/atomic"
)

type key struct{}

// With returns a context with which a request calls f, at once and without a lock
// held, when it stands in line. One that is refused without that does not.
func With(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, key{}, f)
}

// Tell calls what With has given.
func Tell(ctx context.Context) {
	if f, ok := ctx.Value(key{}).(func()); ok {
		f()
	}
}

// Slots is what a request for slots of limits in flight is told, and tells.
type Slots struct {
	// First is its first arrival, in microseconds of Redis's clock, by which it stands
	// in line. If it is 0, it is set when it does.
	First *atomic.Int64
	// Refused, if not nil, is called when the slots are not free.
	Refused func()
}

type slotsKey struct{}

// WithSlots returns a context whose requests for slots are those.
func WithSlots(ctx context.Context, s Slots) context.Context {
	return context.WithValue(ctx, slotsKey{}, s)
}

// SlotsOf returns what WithSlots has given.
func SlotsOf(ctx context.Context) Slots {
	s, _ := ctx.Value(slotsKey{}).(Slots)
	return s
}
