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

// Who has used its share of an interval asks for the next when that is within
// reach, and not as soon as it is back, to be told that it is not.
func TestWhoUsedItsShareAsksWhenTheNextIsInReach(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		const clients, waiters, rounds = 4, 64, 2
		r := Rate{Permits: clients * waiters * rounds, Interval: time.Second, Guard: ms(10)}
		ls := []*Limiter{b.limited(r)}
		for len(ls) < clients {
			ls = append(ls, b.limiter(b.client()))
		}
		ctx, cancel := context.WithCancel(b.Context())
		a := &arrivals{b: b}
		for _, l := range ls {
			for range waiters {
				a.wg.Go(func() {
					for l.Acquire(ctx, 1) == nil {
					}
				})
			}
		}
		count := func() (calls, grants int64) {
			for _, l := range ls {
				s := l.c.Stats()
				calls, grants = calls+s.Calls, grants+s.Grants
			}
			return calls, grants
		}
		b.until(ms(3000))
		callsBefore, grantsBefore := count()
		b.until(ms(13_100))
		calls, grants := count()
		cancel()
		a.wg.Wait()
		calls, grants = calls-callsBefore, grants-grantsBefore
		// A call for each round, and a look before the first; some are served a round of less.
		if most := int64(10*clients*(rounds+1) + 5*clients); calls > most {
			b.Errorf("%d calls in ten intervals, want at most %d", calls, most)
		}
		if grants < 10*r.Permits {
			b.Errorf("%d permits in ten intervals of %d", grants, r.Permits)
		}
	})
}
