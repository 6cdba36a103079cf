package throttle

import (
	"context"
	"testing"
	"time"
)

// If all wait for one limit, those who come back ask together, even if their permits are due at
// slightly different times because they were granted one by one once.
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
				b.until(ms(3000)) // each has a reservation
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

// fleet starts clients whose waiters all wait for one limit, again and again until ctx ends: the
// permits of an interval serve each of them rounds times.
func (b *bench) fleet(ctx context.Context, clients, waiters, rounds int) (Rate, []*Limiter, *arrivals) {
	r := Rate{Permits: int64(clients * waiters * rounds), Interval: time.Second, Guard: ms(10)}
	ls := []*Limiter{b.limited(r)}
	for len(ls) < clients {
		ls = append(ls, b.limiter(b.client()))
	}
	a := &arrivals{b: b}
	for _, l := range ls {
		for range waiters {
			a.wg.Go(func() {
				for l.Acquire(ctx, 1) == nil {
				}
			})
		}
	}
	return r, ls, a
}

// count is what a fleet asked and got.
func count(ls []*Limiter) (calls, grants int64) {
	for _, l := range ls {
		s := l.c.Stats()
		calls, grants = calls+s.Calls, grants+s.Grants
	}
	return calls, grants
}

// A client that has used its share of an interval asks for the next when that is within reach,
// and not as soon as it is back, only to be told that it is not.
func TestWhoUsedItsShareAsksWhenTheNextIsInReach(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		const clients, waiters, rounds = 4, 64, 2
		ctx, cancel := context.WithCancel(b.Context())
		r, ls, a := b.fleet(ctx, clients, waiters, rounds)
		b.until(ms(3000))
		callsBefore, grantsBefore := count(ls)
		b.until(ms(13_100))
		calls, grants := count(ls)
		cancel()
		a.wg.Wait()
		calls, grants = calls-callsBefore, grants-grantsBefore
		// A call for each round, and a check before the first; some are served a round of less.
		if most := int64(10*clients*(rounds+1) + 5*clients); calls > most {
			b.Errorf("%d calls in ten intervals, want at most %d", calls, most)
		}
		if grants < 10*r.Permits {
			b.Errorf("%d permits in ten intervals of %d", grants, r.Permits)
		}
	})
}

// Those who were served by one call, and come back at once, ask in one call even if the limit
// does not bind; but nobody waits longer for others than a call takes.
func TestThoseServedTogetherAskTogether(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		const waiters, rounds = 64, 5
		r := rate("100000/1s")
		r.Guard = -1 // no stock
		l := b.troubled(r, during(1, 100, slow(time.Millisecond)))
		check(b, l.Acquire(b.Context(), 1))
		before, begin := l.c.Stats().Calls, time.Now()
		a := &arrivals{b: b}
		for range waiters {
			a.wg.Go(func() {
				for range rounds {
					check(b, l.Acquire(b.Context(), 1))
				}
			})
		}
		a.wg.Wait()
		// Nobody had been served yet when the first of the first round asked.
		if calls := l.c.Stats().Calls - before; calls > rounds+1 {
			b.Errorf("%d calls, want one for each of %d rounds, and one for who came first", calls, rounds)
		}
		if took := time.Since(begin); took > (rounds+2)*time.Millisecond {
			b.Errorf("%d rounds took %v, want no longer than their calls, and one wait in vain", rounds, took)
		}
		begin = time.Now()
		check(b, l.Acquire(b.Context(), 1)) // only one of 64 comes back
		if took := time.Since(begin); took > 2*time.Millisecond {
			b.Errorf("who came back alone was served after %v, want after it waited a call's time, and a call", took)
		}
	})
}

// A deadline within the horizon makes nobody ask alone.
func TestThoseWithDeadlinesAskTogether(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		const clients, waiters, rounds = 4, 64, 2
		begin := time.Now()
		ctx, cancel := context.WithDeadline(b.Context(), begin.Add(ms(5900)))
		defer cancel()
		r, ls, a := b.fleet(ctx, clients, waiters, rounds)
		b.until(ms(4500))
		before, _ := count(ls)
		a.wg.Wait()
		calls, grants := count(ls)
		// A call for each round, one for the answer that the next permits are too late, and some
		// to spare.
		if most := int64(clients * (rounds + 2)); calls-before > most {
			b.Errorf("%d calls in the last interval, want at most %d", calls-before, most)
		}
		if grants != 6*r.Permits {
			b.Errorf("%d permits in six intervals of %d", grants, r.Permits)
		}
		if late := time.Since(begin); late > ms(5150) {
			b.Errorf("told after %v that the next permits, of 6.06 s, are too late", late)
		}
	})
}
