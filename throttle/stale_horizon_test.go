package throttle

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// A process that has not yet heard that a limit of a day is now one of a second reserves no
// further ahead than any reservation of the new limit may lie. What lies further ahead is taken
// for an entry of another clock, and its owner would use it unrecorded.
func TestHorizonOfAnOldRate(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		old, changed := guarded("100/24h"), guarded("2/1s")
		one := b.limited(old)
		two := b.limiter(b.client())
		check(b, one.Acquire(b.Context(), 1))
		if done, err := two.UpdateRate(b.Context(), changed); !done || err != nil {
			b.Fatal(done, err)
		}
		var mu sync.Mutex
		var starts []time.Time
		var wg sync.WaitGroup
		ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
		defer cancel()
		for i := range 50 {
			l := one
			if i >= 25 {
				l = two
			}
			wg.Go(func() {
				if i >= 25 {
					time.Sleep(ms(100))
				}
				check(b, l.Acquire(ctx, 1))
				mu.Lock()
				defer mu.Unlock()
				starts = append(starts, time.Now())
			})
		}
		wg.Wait()
		slices.SortFunc(starts, time.Time.Compare)
		if n := busiest(starts, time.Second); n > 2 {
			b.Errorf("%d permits in one second of %v", n, changed)
		}
	})
}
