package operate

import (
	"context"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/internal/driver"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// Pin makes the configuration files of starting workers leave the limiter alone:
// [throttle.Limiter.ApplyRate] changes nothing until [Fleet.Unpin] or [throttle.Limiter.Delete].
// Everything else that changes a rate still does. It is no error to pin a limiter that is pinned.
//
// If there is no such limiter the error is [throttle.ErrNotInitialized], and if no limiter can
// have the name [throttle.ErrInvalidName]. After an error of Redis or of ctx the limiter may be
// pinned or not: Pin it again. Pin does not wait for replicas.
func (f *Fleet) Pin(ctx context.Context, name string) error { return f.pin(ctx, name, 1) }

// Unpin undoes [Fleet.Pin]. Its errors are those of Pin. It is no error to unpin a limiter that
// is not pinned.
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
