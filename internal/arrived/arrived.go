// Package arrived tells a caller of the throttle when its request is in line. A request that
// another goroutine makes after that comes behind it. The reservation itself only returns with
// the answer.
package arrived

import (
	"context"
	"sync/atomic"
)

type key struct{}

// With returns a context with which a request calls f when it is in line. The call is made at
// once, without a lock held. A request that is refused before it is in line does not call f.
func With(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, key{}, f)
}

// Tell calls the function of With.
func Tell(ctx context.Context) {
	if f, ok := ctx.Value(key{}).(func()); ok {
		f()
	}
}

// Turn is where a request for permits stands among others of its process. It takes the turn of those of the same Among that came
// later, also if they asked earlier, as far as they have the time to wait for another. Until its permits are due soon, they may get
// another time, also between the reservation and Near.
type Turn struct {
	Among string
	Since int64 // when its caller came
}

type turnKey struct{}

// WithTurn returns a context whose requests for permits stand at t.
func WithTurn(ctx context.Context, t Turn) context.Context {
	return context.WithValue(ctx, turnKey{}, t)
}

// TurnOf returns the Turn of WithTurn.
func TurnOf(ctx context.Context) Turn {
	t, _ := ctx.Value(turnKey{}).(Turn)
	return t
}

// Slots is what a request for slots of limits in flight gets from its caller, and reports to
// it.
type Slots struct {
	// First is the request's first arrival, in microseconds of Redis's clock. It determines the
	// position in line. If it is 0, the request sets it when it is in line.
	First *atomic.Int64
	// Refused, if not nil, is called when the slots are not free.
	Refused func()
}

type slotsKey struct{}

// WithSlots returns a context whose requests for slots use s.
func WithSlots(ctx context.Context, s Slots) context.Context {
	return context.WithValue(ctx, slotsKey{}, s)
}

// SlotsOf returns the Slots of WithSlots.
func SlotsOf(ctx context.Context) Slots {
	s, _ := ctx.Value(slotsKey{}).(Slots)
	return s
}
