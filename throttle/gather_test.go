package throttle

import (
	"context"
	"testing"
	"time"
)

// Where all wait for one limit, those who come back ask together: also those
// whose turns are a little apart, since the permits were once had one by one.
func TestThoseWhoComeBackAskTogether(t *testing.T) {
	for name, had := range map[string]struct {
		times int
		apart time.Duration
		most  int64 // calls for five intervals
	}{
		"close": {8, ms(3), 25},
		"far":   {64, ms(15), 160},
	} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				const permits, waiters = 64, 60 // all of them within the horizon
				r := rate("64/1s")
				r.Guard = ms(10)
				l := b.limited(r)
				for i := range had.times {
					b.until(time.Duration(i) * had.apart)
					b.expectTry(l, int64(permits/had.times), true)
				}
				ctx, cancel := context.WithCancel(b.Context())
				a := &arrivals{b: b}
				for range waiters {
					a.wg.Go(func() {
						for l.Acquire(ctx, 1) == nil {
						}
					})
				}
				b.until(ms(3000)) // each has a place
				before := l.c.Stats()
				b.until(ms(8050))
				after := l.c.Stats()
				cancel()
				a.wg.Wait()
				grants, calls := after.Grants-before.Grants, after.Calls-before.Calls
				if calls > had.most {
					b.Errorf("%d calls for %d permits, want at most %d", calls, grants, had.most)
				}
				if grants != 5*permits {
					b.Errorf("%d permits in five intervals of %d", grants, permits)
				}
			})
		})
	}
}
