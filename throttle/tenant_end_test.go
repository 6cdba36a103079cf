package throttle

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// TestKilledProcess: those who wait in a process that is gone soon no longer count.
func TestKilledProcess(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		way := &cut{Scripter: b.rdb}
		dead, l := b.limiter(b.clientOf(way)), b.limiter(b.client())
		check(b, l.SetRate(b.Context(), rate("100/1s")))
		b.waiters(dead.For("dead"), 1000)
		time.Sleep(3 * time.Second)
		way.off.Store(true)
		time.Sleep(2 * time.Second)
		alive := &sharer{name: "alive", callers: 200, cost: one}
		b.shareFor([]*Limiter{l}, 0, 2*time.Second, alive)
		if alive.got < 190 {
			b.Errorf("%d permits in 2s, want about 200", alive.got)
		}
		b.settled(l, 2*time.Second)
	})
}

// TestTenantErrors: names and weights that are invalid, and limits that cannot be shared.
func TestTenantErrors(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		ctx, c := b.Context(), b.client()
		l := b.limiter(c)
		for _, name := range []string{"", strings.Repeat("x", 129), "a\tb", "\xff"} {
			of := l.For(name)
			b.expectError(of.Acquire(ctx, 1), ErrInvalidTenant, l.name)
			_, err := of.TryAcquire(ctx, 1)
			b.expectError(err, ErrInvalidTenant, l.name)
			_, err = of.Reserve(ctx, 1, time.Second)
			b.expectError(err, ErrInvalidTenant, l.name)
			b.expectError(l.SetWeight(ctx, name, 1), ErrInvalidTenant, l.name)
		}
		for _, w := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e-4, 2e6} {
			b.expectError(l.SetWeight(ctx, "a", w), ErrInvalidWeight, l.name)
		}
		a := l.For("a")
		b.expectError(a.Acquire(ctx, 1), ErrNotInitialized, l.name)
		_, err := a.TryAcquire(ctx, 1)
		b.expectError(err, ErrNotInitialized, l.name)
		_, err = c.Group(a)
		b.expectError(err, ErrInvalidGroup, l.name)
		check(b, l.SetRate(ctx, perClient("5/1s")))
		b.expectError(a.Acquire(ctx, 1), ErrPerClient, l.name)
		check(b, l.SetRate(ctx, rate("5/10s")))
		b.expectError(a.Acquire(ctx, 0), ErrInvalidPermits, l.name)
		b.expectError(a.Acquire(ctx, 6), ErrExceedsRate, l.name)
		check(b, a.Acquire(ctx, 5))
		late, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		began := time.Now()
		err = a.Acquire(late, 1)
		b.expectError(err, ErrExceedsDeadline, l.name)
		var e *Error
		if errors.As(err, &e) && (time.Since(began) > 500*time.Millisecond || e.Wait < 8*time.Second) {
			b.Errorf("refused after %v, with a wait of %v", time.Since(began), e.Wait)
		}
		ended, end := context.WithCancel(ctx)
		time.AfterFunc(100*time.Millisecond, end)
		b.expectError(a.Acquire(ended, 1), context.Canceled, l.name)
		b.expectError(a.Acquire(ended, 1), context.Canceled, l.name)
		check(b, b.rdb.Set(ctx, script.TenantKeys(l.name, "", "")[8], "x", 0).Err())
		b.expectError(a.Acquire(ctx, 1), ErrWrongType, l.name)
		check(b, l.SetWeight(ctx, "a", 2))
		_, err = l.Delete(ctx)
		check(b, err)
		if keys := b.keys(); len(keys) > 0 {
			b.Errorf("after Delete there is %v", keys)
		}
	})
}

// TestTenantsEnd: Close ends those who wait.
func TestTenantsEnd(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l, other := b.limited(rate("1/1h")), b.limiter(b.client())
		check(b, l.For("a").Acquire(b.Context(), 1))
		errs := make(chan error)
		go func() { errs <- l.For("a").Acquire(b.Context(), 1) }()
		time.Sleep(100 * time.Millisecond)
		check(b, l.c.Close())
		b.expectError(<-errs, ErrClosed, l.name)
		b.expectError(l.For("a").Acquire(b.Context(), 1), ErrClosed, l.name)
		b.settled(other, 2*time.Second)
	})
}

// TestTenantsWithoutRedis: Acquire waits while Redis is away, TryAcquire says so.
func TestTenantsWithoutRedis(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		way := &cut{Scripter: b.rdb}
		l := b.limiter(b.clientOf(way))
		check(b, l.SetRate(b.Context(), rate("10/1s")))
		way.off.Store(true)
		began := time.Now()
		_, err := l.For("a").TryAcquire(b.Context(), 1)
		b.expectError(err, context.DeadlineExceeded, l.name)
		if took := time.Since(began); took > 100*time.Millisecond {
			b.Errorf("a try was told after %v that Redis is away", took)
		}
		b.expectError(err, errCut, l.name)
		late, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		err = l.For("a").Acquire(late, 1)
		b.expectError(err, context.DeadlineExceeded, l.name)
		b.expectError(err, errCut, l.name)
		time.AfterFunc(3*time.Second, func() { way.off.Store(false) })
		began = time.Now()
		check(b, l.For("a").Acquire(b.Context(), 1))
		if took := time.Since(began); took < 3*time.Second || took > 4*time.Second {
			b.Errorf("acquired after %v, where Redis was away for 3s", took)
		}
	})
}
