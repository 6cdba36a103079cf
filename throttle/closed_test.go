package throttle

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestClosedClient: each method of a closed Client that would call Redis returns ErrClosed at once instead, and calls it not.
func TestClosedClient(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		c := b.client()
		ls, g := b.grouped(c, rate("5/1s"), rate("5/1s"))
		l, of := ls[0], ls[0].For("acme")
		slots, err := c.InFlight(b.name(), Slots{Limit: 1})
		check(b, err)
		_, err = g.TryAcquire(b.Context(), 1)
		check(b, err)
		check(b, c.Close())
		calls := c.Stats().Calls
		only := func(_ any, err error) error { return err }
		for name, method := range map[string]func(context.Context) error{
			"Acquire":             func(ctx context.Context) error { return l.Acquire(ctx, 1) },
			"TryAcquire":          func(ctx context.Context) error { return only(l.TryAcquire(ctx, 1)) },
			"TryAcquireFor":       func(ctx context.Context) error { return only(l.TryAcquireFor(ctx, 1, time.Hour)) },
			"Reserve":             func(ctx context.Context) error { return only(l.Reserve(ctx, 1, time.Hour)) },
			"Release":             func(ctx context.Context) error { return l.Release(ctx, 1) },
			"TrySetRate":          func(ctx context.Context) error { return only(l.TrySetRate(ctx, rate("1/1s"))) },
			"SetRate":             func(ctx context.Context) error { return l.SetRate(ctx, rate("1/1s")) },
			"UpdateRate":          func(ctx context.Context) error { return only(l.UpdateRate(ctx, rate("1/1s"))) },
			"ApplyRate":           func(ctx context.Context) error { return only(l.ApplyRate(ctx, rate("1/1s"))) },
			"SetAdapt":            func(ctx context.Context) error { return l.SetAdapt(ctx, Adapt{Min: 1, Max: 9}) },
			"ApplyAdapt":          func(ctx context.Context) error { return only(l.ApplyAdapt(ctx, rate("5/1s"), Adapt{Min: 1, Max: 9})) },
			"Config":              func(ctx context.Context) error { return only(l.Config(ctx)) },
			"AvailablePermits":    func(ctx context.Context) error { return only(l.AvailablePermits(ctx)) },
			"Inspect":             func(ctx context.Context) error { return only(l.Inspect(ctx)) },
			"Pause":               func(ctx context.Context) error { return l.Pause(ctx, time.Hour) },
			"Resume":              func(ctx context.Context) error { return l.Resume(ctx) },
			"Pin":                 func(ctx context.Context) error { return l.Pin(ctx) },
			"Unpin":               func(ctx context.Context) error { return l.Unpin(ctx) },
			"Expire":              func(ctx context.Context) error { return only(l.Expire(ctx, time.Hour)) },
			"ClearExpire":         func(ctx context.Context) error { return only(l.ClearExpire(ctx)) },
			"Delete":              func(ctx context.Context) error { return only(l.Delete(ctx)) },
			"SetWeight":           func(ctx context.Context) error { return l.SetWeight(ctx, "acme", 2) },
			"For Acquire":         func(ctx context.Context) error { return of.Acquire(ctx, 1) },
			"For TryAcquireFor":   func(ctx context.Context) error { return only(of.TryAcquireFor(ctx, 1, time.Hour)) },
			"Group.Acquire":       func(ctx context.Context) error { return g.Acquire(ctx, 1) },
			"Group.TryAcquireFor": func(ctx context.Context) error { return only(g.TryAcquireFor(ctx, 1, time.Hour)) },
			"Group.Reserve":       func(ctx context.Context) error { return only(g.Reserve(ctx, 1, time.Hour)) },
			"Group.Release":       func(ctx context.Context) error { return g.Release(ctx, 1) },
			"Group.Pause":         func(ctx context.Context) error { return g.Pause(ctx, time.Hour) },
			"Group.Resume":        func(ctx context.Context) error { return g.Resume(ctx) },
			"InFlight.Acquire":    func(ctx context.Context) error { return only(slots.Acquire(ctx, "id")) },
		} {
			ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second) // whoever waits for that long has failed
			if err := method(ctx); !errors.Is(err, ErrClosed) {
				b.Errorf("%s: %v, want ErrClosed", name, err)
			}
			cancel()
		}
		if n := c.Stats().Calls - calls; n != 0 {
			b.Errorf("%d calls after Close, want none", n)
		}
	})
}
