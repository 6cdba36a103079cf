package throttle

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestSlotAndPermitsBesideOthers: one caller needs a slot and a permit. Others need only the one or the other, and always wait for
// it: whatever becomes free is taken at once. The caller has its turn all the same. It does not wait until both are free together
// by chance: here they are twice in ten minutes.
func TestSlotAndPermitsBesideOthers(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		defer wg.Wait()
		rate := Rate{Permits: 10, Interval: 5 * time.Second}
		slots, permits := b.client(), b.client()
		seat := b.inFlight(slots, "seat", 1)
		for i := range 3 {
			wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					l, err := seat.Acquire(ctx, fmt.Sprint("seat", i, " ", n))
					if err != nil {
						return
					}
					time.Sleep(2 * time.Second)
					check(b, l.Release(b.Context()))
				}
			})
		}
		api, err := permits.LimiterWithRate(b.name()+"api", rate)
		check(b, err)
		for range 30 {
			wg.Go(func() {
				for api.Acquire(ctx, 1) == nil {
				}
			})
		}
		both := b.client()
		same, err := both.LimiterWithRate(b.name()+"api", rate)
		check(b, err)
		g, err := both.Group(same)
		check(b, err)
		sg, err := g.WithSlots(b.inFlight(both, "seat", 1))
		check(b, err)
		for n := range 3 {
			l, err := sg.AcquireEach(ctx, fmt.Sprint("both", n), 1)
			if err != nil {
				b.Fatalf("%d times in two minutes: %v", n, err)
			}
			check(b, l.Release(b.Context()))
		}
		cancel()
	})
}
