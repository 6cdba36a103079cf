package throttle

import (
	"sync"
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
