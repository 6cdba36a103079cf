// Package arrived tells a caller of the throttle when its request stands in line:
// who asks next, on another goroutine, stands behind it. A reservation itself only
// returns with the answer.
package arrived

import "context"

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
