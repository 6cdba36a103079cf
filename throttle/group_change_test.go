package throttle

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// When one limit of a group changes, those who wait for the group ask again. What they had
// reserved of the other limits is no longer theirs, and is free again.
func TestChangeOfOneLimitOfAGroup(t *testing.T) {
	for name, change := range map[string]func(*bench, *Limiter) error{
		"paused":  func(b *bench, l *Limiter) error { return l.Pause(b.Context(), time.Second) },
		"raised":  func(b *bench, l *Limiter) error { return second(l.UpdateRate(b.Context(), guarded("12/1s"))) },
		"lowered": func(b *bench, l *Limiter) error { return second(l.UpdateRate(b.Context(), guarded("8/1s"))) },
	} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				c, other := b.client(), b.client()
				short, day := b.limiter(c), must(c.Limiter(b.name()+":day"))
				check(b, short.SetRate(b.Context(), guarded("10/1s")))
				check(b, day.SetRate(b.Context(), guarded("1000/24h")))
				g := must(c.Group(short, day))
				const waiters = 30
				var wg sync.WaitGroup
				for range waiters {
					wg.Go(func() { check(b, g.Acquire(b.Context(), 1)) })
				}
				b.until(ms(500))
				check(b, change(b, b.limiter(other)))
				wg.Wait()
				b.expectAvailable(day, 1000-waiters)
			})
		})
	}
}

// TestLimitOfAGroupIsGone: what those who wait for a group had reserved in its other limits is free again.
func TestLimitOfAGroupIsGone(t *testing.T) {
	for name, end := range map[string]func(*bench, *Limiter) error{
		"deleted": func(b *bench, l *Limiter) error { return second(l.Delete(b.Context())) },
		"broken": func(b *bench, l *Limiter) error {
			return b.rdb.HSet(b.Context(), l.Name(), "rate", "x").Err()
		},
	} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, asked again %v", name, again), func(t *testing.T) {
				underFakeTime(t, func(b *bench) {
					c := b.client()
					short, day := b.limiter(c), must(c.Limiter(b.name()+":day"))
					check(b, short.SetRate(b.Context(), guarded("10/1s")))
					check(b, day.SetRate(b.Context(), guarded("1000/24h")))
					g := must(c.Group(short, day))
					var wg sync.WaitGroup
					var granted atomic.Int64
					for range 30 {
						wg.Go(func() {
							for b.Context().Err() == nil {
								if g.Acquire(b.Context(), 1) == nil {
									granted.Add(1)
									return
								}
								if !again || time.Since(b.begin) > 2*time.Second {
									return
								}
								time.Sleep(ms(1))
							}
						})
					}
					b.until(ms(500))
					check(b, end(b, b.limiter(b.client())))
					if again {
						b.until(ms(1500))
					} else {
						wg.Wait()
						time.Sleep(ms(1)) // until what was on its way is done
					}
					b.expectAvailable(day, 1000-granted.Load())
					wg.Wait()
				})
			})
		}
	}
}

// TestGroupOfALimitThatIsMissing: who asks is told with one call, however often it asks.
func TestGroupOfALimitThatIsMissing(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		c := b.client()
		there, missing := b.limiter(c), must(c.Limiter(b.name()+":missing"))
		check(b, there.SetRate(b.Context(), guarded("10/1s")))
		g := must(c.Group(there, missing))
		b.expectError(g.Acquire(b.Context(), 1), ErrNotInitialized, missing.Name())
		before := c.Stats().Calls
		for range 5 {
			b.expectError(g.Acquire(b.Context(), 1), ErrNotInitialized, missing.Name())
		}
		if n := c.Stats().Calls - before; n != 5 {
			b.Errorf("%d calls for 5 answers", n)
		}
	})
}
