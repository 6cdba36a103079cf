package throttle

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// taken reserves permits and waits for them.
func (b *bench) taken(l *Limiter, n int64) *Reservation {
	b.Helper()
	r, err := l.Reserve(b.Context(), n, time.Minute)
	check(b, err)
	check(b, r.Wait(b.Context()))
	return r
}

// TestReleaseOfAReservation: what was not used of a grant is free at once, and stays free when
// the permits that others took before expire.
func TestReleaseOfAReservation(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l, ctx := b.limited(rate("10/2s")), b.Context()
		b.expectTry(l, 5, true)
		b.begin = time.Now()
		b.until(ms(1000))
		r := b.taken(l, 5)
		check(b, r.Release(ctx, 0))
		b.expectAvailable(l, 0)
		check(b, r.Release(ctx, 4))
		b.expectAvailable(l, 4)
		b.expectTry(l, 4, true)
		b.expectTry(l, 1, false)
		b.until(ms(2100))
		b.expectAvailable(l, 5) // those of the others
		for _, n := range []int64{2, 1 << 40, -1} {
			b.expectError(r.Release(ctx, n), ErrInvalidPermits, l.Name())
		}
		check(b, r.Release(ctx, 1))
		b.expectAvailable(l, 6)
		late := b.taken(l, 2)
		b.until(ms(4300))
		b.expectTry(l, 10, true)
		check(b, late.Release(ctx, 2)) // they no longer count: what is free belongs to others
		b.expectAvailable(l, 0)

		denied, err := l.Reserve(ctx, 1, 0)
		check(b, err)
		b.expectError(denied.Release(ctx, 1), ErrInvalidPermits, l.Name())
		ahead, err := l.Reserve(ctx, 1, time.Minute)
		check(b, err)
		b.expectError(ahead.Release(ctx, 1), ErrInvalidPermits, l.Name()) // Cancel is for that
		ahead.Cancel()
	})
}

// TestReleaseAfterAChange: a pause and another rate leave what was taken in the log: it can be
// given back. Giving back what SetRate has forgotten frees nobody else's permits.
func TestReleaseAfterAChange(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l, ctx := b.limited(rate("10/5s")), b.Context()
		b.expectTry(l, 2, true)
		r := b.taken(l, 5)
		check(b, l.Pause(ctx, ms(100)))
		b.begin = time.Now()
		check(b, r.Release(ctx, 2))
		b.until(ms(300))
		b.expectAvailable(l, 5)
		changed, err := l.UpdateRate(ctx, rate("20/5s"))
		check(b, err)
		if !changed {
			b.Error("the limit was not there")
		}
		check(b, r.Release(ctx, 2))
		b.expectAvailable(l, 17)
		check(b, l.SetRate(ctx, rate("10/5s")))
		b.expectTry(l, 4, true)
		check(b, r.Release(ctx, 1))
		b.expectAvailable(l, 6)
	})
}

func TestReleaseOfAGroupsReservation(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		ls, g := b.grouped(b.client(), rate("10/2s"), rate("100/2s"))
		ctx := b.Context()
		r, err := g.ReserveEach(ctx, time.Minute, 1, 60)
		check(b, err)
		check(b, r.Wait(ctx))
		b.expectError(r.Release(ctx, 2), ErrInvalidPermits, ls[0].Name())
		b.expectError(r.ReleaseEach(ctx, 1), ErrInvalidPermits, ls[0].Name())
		check(b, r.ReleaseEach(ctx, 0, 50))
		b.expectAvailable(ls[0], 9)
		b.expectAvailable(ls[1], 90)
	})
}

// TestEstimatesUseTheLimit: callers take what they may need, use 0.3 to all of it, and say so
// some time later. No window has more than the limit of what was used or may still be used; and
// the limit is still used.
func TestEstimatesUseTheLimit(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		const permits, intervals = 10_000, 6
		limit := rate("10000/10s")
		ls := []*Limiter{b.limited(limit)}
		ls = append(ls, b.limiter(b.client()))
		type use struct {
			at   time.Duration
			used int64
		}
		var mu sync.Mutex
		var uses []use
		ctx, cancel := context.WithTimeout(b.Context(), intervals*limit.Interval)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 60 {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			wg.Go(func() {
				for ctx.Err() == nil {
					n := 50 + random.Int64N(100)
					r, err := ls[i%2].Reserve(ctx, n, time.Minute)
					if err != nil || !r.OK() || r.Wait(ctx) != nil {
						return
					}
					used := int64(float64(n) * (0.3 + 0.7*random.Float64()))
					mu.Lock()
					uses = append(uses, use{time.Since(b.begin), used})
					mu.Unlock()
					time.Sleep(200 * time.Millisecond) // the call
					check(b, r.Release(context.WithoutCancel(ctx), n-used))
				}
			})
		}
		wg.Wait()
		slices.SortFunc(uses, func(a, b use) int { return int(a.at - b.at) })
		in, first, all := int64(0), 0, int64(0)
		for _, u := range uses {
			in, all = in+u.used, all+u.used
			for ; u.at-uses[first].at >= limit.Interval; first++ {
				in -= uses[first].used
			}
			if in > permits {
				b.Fatalf("%d within 10 s at %v", in, u.at)
			}
		}
		share := float64(all) / permits / intervals
		b.Logf("%d calls used %.1f %% of the limit", len(uses), 100*share)
		if share < 0.96 {
			b.Errorf("%.1f %% of the limit were used", 100*share)
		}
	})
}

// TestReleaseToASpoiltLimit: whoever gives permits back to a limit that cannot be read is told so.
func TestReleaseToASpoiltLimit(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("10/1h"))
		r := b.taken(l, 1)
		check(b, b.rdb.HSet(b.Context(), l.Name(), "rate", "x").Err())
		b.expectError(r.Release(b.Context(), 1), ErrInvalidRate, l.Name())
	})
}
