package throttle

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Defects that need many waiters, or much use. See scenarios_load_test.go.

func TestD1LoweringKeepsUsage(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l, book := b.recorded(b.perSecond(10))
		ctx, cancel := context.WithTimeout(b.Context(), 20*b.second())
		defer cancel()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for l.Acquire(ctx, 1) == nil {
				}
			})
		}
		b.until(11 * b.second() / 2)
		if ok, err := l.UpdateRate(b.Context(), b.perSecond(5)); !ok || err != nil {
			b.Errorf("UpdateRate: %v, %v", ok, err)
		}
		lowered, err := b.rdb.Time(b.Context()).Result()
		check(b, err)
		wg.Wait()
		u := book.uses()
		after := u.after(lowered.Add(100 * time.Millisecond)) // nearer reservations stay
		if before, most := u.busiest(b.second()), after.busiest(b.second()); before != 10 || most != 5 {
			b.Errorf("up to %d in %v before lowering the rate from 10 to 5, %d of %d after", before, b.second(), most, len(after))
		}
	})
}

// A request for many permits is served in order: each request for one permit passes it at most
// twice, once in line before it and once before it is in line.
func TestD12BigRequestsAreServedInTurn(t *testing.T) {
	for _, n := range []int64{5, 10} {
		t.Run(fmt.Sprintf("%d of 10", n), func(t *testing.T) {
			forEachRedis(t, func(b *bench) {
				const singles, turns = 20, 5
				l := b.limited(b.perSecond(10))
				ctx, cancel := context.WithCancel(b.Context())
				var wg sync.WaitGroup
				var served atomic.Int64
				for range singles {
					wg.Go(func() {
						for l.Acquire(ctx, 1) == nil {
							served.Add(1)
						}
					})
				}
				for range turns {
					before := served.Load()
					within, stop := context.WithTimeout(ctx, time.Minute)
					err := l.Acquire(within, n)
					stop()
					if passed := served.Load() - before; err != nil || passed > 2*singles {
						b.Errorf("Acquire(%d): %v, after %d requests for one by %d waiters", n, err, passed, singles)
					}
				}
				cancel()
				wg.Wait()
			})
		})
	}
}

func TestD13WaitersShareCalls(t *testing.T) {
	for _, waiters := range []int{100, 300, 600} {
		t.Run(fmt.Sprintf("%d waiters", waiters), func(t *testing.T) {
			forEachRedis(t, func(b *bench) {
				l := b.limited(b.perSecond(50))
				before := l.c.Stats().Calls
				var wg sync.WaitGroup
				for range waiters {
					wg.Go(func() {
						if err := l.Acquire(b.Context(), 1); err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
				calls := l.c.Stats().Calls - before
				b.Logf("%.3f calls for each grant", float64(calls)/float64(waiters))
				if calls > int64(waiters/2) {
					b.Errorf("%d calls for %d permits", calls, waiters)
				}
			})
		})
	}
}

func TestD14LogStaysSmall(t *testing.T) {
	t.Parallel()
	r := Rate{Permits: 100_000, Interval: time.Minute, Guard: -1}
	// However the use is spread over the interval, the entries stay few, and everything that has
	// expired makes room.
	t.Run("fake time", func(t *testing.T) {
		underFakeTime(t, func(b *bench) {
			l := b.limited(r)
			const grants = 1200
			entries := int64(0)
			for i := range grants {
				b.until(time.Duration(i) * r.Interval / grants)
				b.expectTry(l, r.Permits/grants, true)
				n, err := b.rdb.ZCard(b.Context(), l.keys()[2]).Result()
				check(b, err)
				entries = max(entries, n)
			}
			b.Logf("at most %d entries for %d grants", entries, grants)
			if entries > 640 {
				b.Errorf("%d entries for %d grants", entries, grants)
			}
			b.until(2 * r.Interval)
			b.expectAvailable(l, r.Permits)
			b.expectTry(l, r.Permits, true)
		})
	})
	// The keys of 100,000 grants take a fiftieth of the 120 bytes for each, and a call after
	// everything has expired is served.
	t.Run("redis", func(t *testing.T) {
		onRealRedis(t, func(b *bench) {
			r, ctx := r, b.Context()
			if !nightly() {
				r.Interval = time.Hour // on a busy machine it takes a while until all are granted
			}
			l := b.limited(r)
			check(b, b.rdb.ConfigSet(ctx, "slowlog-log-slower-than", "0").Err())
			var wg sync.WaitGroup
			var had atomic.Int64
			for range 64 {
				wg.Go(func() {
					for {
						ok, err := l.TryAcquire(ctx, 1)
						if err != nil {
							b.Error(err)
						}
						if !ok {
							return // or an error
						}
						had.Add(1)
					}
				})
			}
			wg.Wait()
			var bytes int64
			keys, err := b.rdb.Keys(ctx, "*").Result()
			check(b, err)
			for _, key := range keys {
				n, err := b.rdb.MemoryUsage(ctx, key, 0).Result()
				check(b, err)
				bytes += n
			}
			b.Logf("%d bytes for %d grants", bytes, had.Load())
			if had.Load() != r.Permits || bytes > 120*r.Permits/50 {
				b.Errorf("%d grants of %d took %d bytes", had.Load(), r.Permits, bytes)
			}

			expire := r.Interval
			if !nightly() { // the same for an interval that was shortened
				expire = time.Second
				_, err := l.UpdateRate(ctx, Rate{Permits: r.Permits, Interval: expire, Guard: -1})
				check(b, err)
			}
			b.until(time.Since(b.begin) + expire)
			b.expectAvailable(l, r.Permits)
			b.expectTry(l, r.Permits, true)
			b.expectTry(l, 1, false)
		})
	})
}
