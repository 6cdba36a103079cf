package throttle

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// TestNear: Near returns shortly before the permits are due, whenever that is: it hears of an earlier or a later time. It does
// not take the permits.
func TestNear(t *testing.T) {
	r := Rate{Permits: 2, Interval: 2 * time.Second, Guard: 20 * time.Millisecond}
	const early = 50 * time.Millisecond
	for name, tt := range map[string]struct {
		near, due time.Duration
		does      func(b *bench, l, other *Limiter) // half a second after the start
	}{
		"as reserved":         {ms(1970), ms(2020), func(*bench, *Limiter, *Limiter) {}},
		"permits are given":   {ms(500), ms(500), func(b *bench, l, _ *Limiter) { check(b, l.Release(b.Context(), 1)) }},
		"by another process":  {ms(500), ms(500), func(b *bench, _, other *Limiter) { check(b, other.Release(b.Context(), 1)) }},
		"the limit is paused": {ms(5450), ms(5500), func(b *bench, l, _ *Limiter) { check(b, l.Pause(b.Context(), 5*time.Second)) }},
		"the limit is raised": {ms(500), ms(500), func(b *bench, _, other *Limiter) {
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
				var wg sync.WaitGroup
				defer wg.Wait()
				wg.Go(func() {
					b.until(ms(500))
					tt.does(b, l, other)
				})
				expect := func(what string, want time.Duration) {
					b.Helper()
					if at := time.Since(b.begin); at < want || at > want+ms(40) {
						b.Errorf("%s at %v, want %v", what, at, want)
					}
				}
				check(b, of.Near(b.Context(), early))
				expect("near", tt.near)
				check(b, of.Near(b.Context(), early))
				expect("again", tt.near)
				check(b, of.Wait(b.Context()))
				expect("taken", tt.due)
				check(b, of.Near(b.Context(), early)) // it has its permits
			})
		})
	}
}

// TestNothingMovesAfterNear: once Near has returned, permits keep their time, whatever others give back, because nobody would
// hear of another.
func TestNothingMovesAfterNear(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(Rate{Permits: 1, Interval: 2 * time.Second, Guard: 20 * time.Millisecond})
		check(b, l.Acquire(b.Context(), 1))
		of, err := l.Reserve(b.Context(), 1, time.Minute)
		check(b, err)
		a := &arrivals{b: b}
		a.wait(b.Context(), b.limiter(b.client()), 1)
		check(b, of.Near(b.Context(), 1700*time.Millisecond))
		check(b, l.Release(b.Context(), 1))
		b.until(ms(2010))
		check(b, of.Wait(b.Context()))
		if at := time.Since(b.begin); at > ms(2030) {
			b.Errorf("taken at %v, want 2.02s", at)
		}
		a.wg.Wait()
	})
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
		of, err = l.Reserve(b.Context(), 1, 0)
		check(b, err)
		if err := of.Near(b.Context(), ms(50)); !errors.Is(err, ErrExceedsDeadline) {
			b.Errorf("%v for what was refused", err)
		}
		check(b, l.Resume(b.Context()))
		time.Sleep(time.Second)
		of, err = l.Reserve(b.Context(), 1, 0)
		check(b, err)
		check(b, of.Near(b.Context(), 0))
		check(b, of.Wait(b.Context()))
	})
}

// TestNearAfterTheEnd: who waits once more for what is gone hears so.
func TestNearAfterTheEnd(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		c := b.client()
		l := b.limiter(c)
		check(b, l.SetRate(b.Context(), Rate{Permits: 1, Interval: time.Second}))
		check(b, l.Acquire(b.Context(), 1))
		of, err := l.Reserve(b.Context(), 1, time.Minute)
		check(b, err)
		check(b, c.Close())
		for range 2 {
			if err := of.Near(b.Context(), ms(50)); !errors.Is(err, ErrClosed) {
				b.Errorf("Near: %v", err)
			}
			if err := of.Wait(b.Context()); !errors.Is(err, ErrClosed) {
				b.Errorf("Wait: %v", err)
			}
		}
	})
}

// TestChangeBeforeWait: what was reserved is exchanged for the next permits also if the limit is changed while nobody waits for
// it, however far they are; only Near keeps to the time that Reserve was given.
func TestChangeBeforeWait(t *testing.T) {
	for name, change := range map[string]func(b *bench, l *Limiter) error{
		"paused":  func(b *bench, l *Limiter) error { return l.Pause(b.Context(), 5*time.Second) },
		"lowered": func(b *bench, l *Limiter) error { _, err := l.UpdateRate(b.Context(), rate("10/6s")); return err },
	} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				l := b.limited(rate("10/1s"))
				check(b, l.Acquire(b.Context(), 10))
				reserve := func() *Reservation {
					r, err := l.Reserve(b.Context(), 3, 2*time.Second)
					check(b, err)
					if !r.OK() {
						b.Fatalf("refused: it comes in %v", r.Delay())
					}
					return r
				}
				waits, nears, short := reserve(), reserve(), reserve()
				check(b, change(b, l))
				b.until(2 * time.Second)
				if d := waits.Delay(); d < ms(100) || d > 5*time.Second {
					b.Errorf("it comes in %v after the change", d)
				}
				if err := nears.Near(b.Context(), ms(100)); !errors.Is(err, ErrExceedsDeadline) {
					b.Errorf("Near: %v", err)
				}
				soon, cancel := context.WithTimeout(b.Context(), time.Second)
				defer cancel()
				if err := short.Wait(soon); !errors.Is(err, ErrExceedsDeadline) || time.Since(b.begin) > ms(2500) {
					b.Errorf("Wait with a deadline: %v after %v", err, time.Since(b.begin))
				}
				check(b, waits.Wait(b.Context()))
				if at := time.Since(b.begin); at < 5*time.Second || at > 8*time.Second {
					b.Errorf("taken at %v", at)
				}
			})
		})
	}
}

// TestCancelAfterAChange: a tenant is not charged for what it had reserved and canceled, though a change took the permits from it
// before.
func TestCancelAfterAChange(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("100/1s"))
		check(b, l.Acquire(b.Context(), 100))
		a, c := l.For("a"), l.For("c")
		ctx, cancel := context.WithCancel(b.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wait := func(tenant *Limiter) {
			for range 100 {
				wg.Go(func() { _ = tenant.Acquire(ctx, 1) })
			}
			synctest.Wait()
		}
		wait(c)
		r, err := a.Reserve(b.Context(), 50, 2*time.Second)
		check(b, err)
		if !r.OK() {
			b.Fatalf("refused: it comes in %v", r.Delay())
		}
		charged := func() float64 {
			f, err := b.rdb.ZScore(b.Context(), script.TenantKeys(l.name, "", "")[6], "a").Result()
			check(b, err)
			return f
		}
		check(b, l.Pause(b.Context(), time.Minute))
		b.until(3 * time.Second)
		before := charged()
		r.Cancel()
		wait(a) // so that the charge is brought up to date
		b.until(4 * time.Second)
		if before != 50 || charged() != 0 {
			b.Errorf("charged %v before, and %v after", before, charged())
		}
	})
}
