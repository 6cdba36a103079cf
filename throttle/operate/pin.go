package operate

import (
	"context"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/internal/driver"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// Pin makes the configuration files of starting workers leave the limiter
// alone: throttle.Limiter.ApplyRate changes nothing until Unpin or Delete. All
// else that changes a rate still does. To pin what is pinned is no error.
//
// A limiter that is not there is throttle.ErrNotInitialized, and a name that
// none can have throttle.ErrInvalidName. After an error of Redis or of ctx it
// may be pinned or not: Pin it again. A pin waits for no replicas.
func (f *Fleet) Pin(ctx context.Context, name string) error { return f.pin(ctx, name, 1) }

// Unpin undoes Pin. Its errors are those of Pin. To unpin what is not pinned is
// no error.
func (f *Fleet) Unpin(ctx context.Context, name string) error { return f.pin(ctx, name, 0) }

// pin makes the change once, however often the network repeats it.
func (f *Fleet) pin(ctx context.Context, name string, pinned int) error {
	if err := checkName(name); err != nil {
		return err
	}
	reply, err := f.changes.Entry(driver.Member{Name: name}).Change(ctx, script.Pin, pinned)
	if err != nil {
		return failed(name, err)
	}
	n, err := script.Int(reply)
	switch {
	case err != nil:
		return failed(name, err)
	case n < 0:
		return failed(name, throttle.ErrNotInitialized)
	}
	return nil
}
