package throttle

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestNear: Near returns shortly before the permits are due, whenever that is: it hears of an earlier or a later time. It does
// not take the permits.
func TestNear(t *testing.T) {
	r := Rate{Permits: 2, Interval: 2 * time.Second, Guard: 20 * time.Millisecond}
	const early = 50 * time.Millisecond
	for name, tt := range map[string]struct {
		at   time.Duration // half a second after the start
		does func(b *bench, l, other *Limiter)
	}{
		"as reserved":         {ms(2020), func(*bench, *Limiter, *Limiter) {}},
		"permits are given":   {ms(550), func(b *bench, l, _ *Limiter) { check(b, l.Release(b.Context(), 1)) }},
		"by another process":  {ms(550), func(b *bench, _, other *Limiter) { check(b, other.Release(b.Context(), 1)) }},
		"the limit is paused": {ms(5500), func(b *bench, l, _ *Limiter) { check(b, l.Pause(b.Context(), 5*time.Second)) }},
		"the limit is raised": {ms(550), func(b *bench, _, other *Limiter) {
			raised := r
			raised.Permits = 3
			check(b, other.SetRate(b.Context(), raised))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				l, other := b.limiter(b.client()), b.limiter(b.client())
				check(b, l.SetRate(b.Context(), r))
				check(b, l.Acquire(b.Context(), 2))
				of, err := l.Reserve(b.Context(), 1, time.Minute)
				check(b, err)
				a := &arrivals{b: b}
				a.wg.Go(func() {
					b.until(ms(500))
					tt.does(b, l, other)
				})
				check(b, of.Near(b.Context(), early))
				if at := time.Since(b.begin); at < tt.at-early-ms(5) || at > tt.at+ms(100) {
					b.Errorf("near at %v, want about %v", at, tt.at-early)
				}
				if d := of.Delay(); d > early {
					b.Errorf("due in %v", d)
				}
				check(b, of.Near(b.Context(), early))
				check(b, of.Wait(b.Context()))
				if at := time.Since(b.begin); at < tt.at-early || at > tt.at+ms(100) {
					b.Errorf("taken at %v, want about %v", at, tt.at)
				}
				check(b, of.Near(b.Context(), early)) // it has its permits
				a.wg.Wait()
			})
		})
	}
}

// TestNearGivesBack: if the context ends, or the permits come too late now, nothing is reserved any more, as after Wait.
func TestNearGivesBack(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(Rate{Permits: 1, Interval: time.Second, Guard: -1})
		check(b, l.Acquire(b.Context(), 1))
		of, err := l.Reserve(b.Context(), 1, time.Minute)
		check(b, err)
		ctx, cancel := context.WithTimeout(b.Context(), ms(100))
		defer cancel()
		if err := of.Near(ctx, ms(50)); !errors.Is(err, context.DeadlineExceeded) {
			b.Errorf("%v when the context ended", err)
		}
		of, err = l.Reserve(b.Context(), 1, ms(1500))
		check(b, err)
		if d := of.Delay(); d > ms(901) {
			b.Errorf("due in %v: the first was not given back", d)
		}
		check(b, l.Pause(b.Context(), 5*time.Second))
		if err := of.Near(b.Context(), ms(50)); !errors.Is(err, ErrExceedsDeadline) || time.Since(b.begin) > ms(1600) {
			b.Errorf("%v at %v", err, time.Since(b.begin))
		}
		if err := of.Wait(b.Context()); !errors.Is(err, ErrExceedsDeadline) {
			b.Errorf("%v", err)
		}
		check(b, l.Resume(b.Context()))
		if of, err = l.Reserve(b.Context(), 1, 0); err != nil || of.OK() && of.Near(b.Context(), 0) != nil {
			b.Errorf("%v", err)
		}
		of, err = l.Reserve(b.Context(), 1, 0)
		check(b, err)
		if err := of.Near(b.Context(), ms(50)); !errors.Is(err, ErrExceedsDeadline) {
			b.Errorf("%v for what was refused", err)
		}
	})
}
