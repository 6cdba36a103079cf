package throttle

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestCause: the error of a wait is that of its context, whatever the cause, which it tells, too.
func TestCause(t *testing.T) {
	sibling := errors.New("sibling")
	for name, ask := range map[string]func(context.Context, *bench, *Limiter) error{
		"Acquire": func(ctx context.Context, _ *bench, l *Limiter) error { return l.Acquire(ctx, 1) },
		"TryAcquireFor": func(ctx context.Context, _ *bench, l *Limiter) error {
			_, err := l.TryAcquireFor(ctx, 1, 2*time.Hour)
			return err
		},
		"Wait": func(ctx context.Context, b *bench, l *Limiter) error {
			return must(l.Reserve(b.Context(), 1, 2*time.Hour)).Wait(ctx)
		},
		"For": func(ctx context.Context, _ *bench, l *Limiter) error { return l.For("tenant").Acquire(ctx, 1) },
		"InFlight": func(ctx context.Context, b *bench, _ *Limiter) error {
			f := b.inFlight(b.client(), "slots", 1)
			defer b.hold(f, "other").Release(b.Context())
			_, err := f.Acquire(ctx, "id")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				l := b.limited(rate("1/1h"))
				b.expectTry(l, 1, true)
				ctx, cancel := context.WithCancelCause(b.Context())
				defer time.AfterFunc(time.Second, func() { cancel(sibling) }).Stop()
				if err := ask(ctx, b, l); !errors.Is(err, context.Canceled) || !errors.Is(err, sibling) {
					b.Error(err)
				}
			})
		})
	}
}

// TestWaitAgain: a Wait after one that succeeded succeeds at once.
func TestWaitAgain(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("1/1h"))
		r := b.taken(l, 1)
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		check(b, r.Wait(ctx))
		b.expectAvailable(l, 0)
	})
}
