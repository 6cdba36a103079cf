package throttle

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestStockIsForThoseWhoWait: a call that brings a stock also serves those who came while it was
// under way.
func TestStockIsForThoseWhoWait(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := rate("1000/1s")
		r.Guard = ms(10)
		l := b.troubled(r, during(1, 100, slow(time.Millisecond)))
		a := &arrivals{b: b}
		for range 10 {
			a.wait(b.Context(), l, 1)
		}
		a.wg.Wait()                                           // that much was used lately, so a call brings as much
		b.until(time.Since(b.begin) + 2*time.Millisecond + 1) // no caller has to be waited for
		calls := l.c.Stats().Calls
		from := time.Since(b.begin)
		a = &arrivals{b: b}
		first := a.wait(b.Context(), l, 1)
		if got := l.c.Stats().Calls - calls; got != 1 || first.at >= 0 {
			b.Fatalf("%d calls are under way, want one", got)
		}
		for range 5 {
			a.wait(b.Context(), l, 1)
		}
		big := a.wait(b.Context(), l, 2)
		last := a.wait(b.Context(), l, 1)
		a.wg.Wait()
		for i, w := range a.waits[:6] {
			if w.err != nil || w.at-from != time.Millisecond {
				b.Errorf("wait %d ended after %v with %v, want 1ms", i, w.at-from, w.err)
			}
		}
		if big.at-from != 2*time.Millisecond || last.at < big.at {
			b.Errorf("the big one was served after %v, and who came after it after %v; want 2ms, and no earlier", big.at-from, last.at-from)
		}
		if got := l.c.Stats().Calls - calls; got != 2 {
			b.Errorf("%d calls, want 2: one that brings a stock, and one for the big one and who came after it", got)
		}
	})
}

// TestFastWayIsNotTriedInVain: if more than half of a limit is used, a call asks acquire.lua,
// which can tell what has expired, and not fast.lua first.
func TestFastWayIsNotTriedInVain(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := rate("1000/1s")
		r.Guard = ms(10)
		l := b.limited(r)
		check(b, l.Acquire(b.Context(), 700))
		before := l.c.Stats().Calls
		for i := range 50 { // several within each half guard, so that a stock is asked for
			check(b, l.Acquire(b.Context(), 1))
			b.until(time.Duration(i+1) * time.Millisecond)
		}
		if calls := l.c.Stats().Calls - before; calls > 52 {
			b.Errorf("%d calls for 50 permits of a limit that is two thirds used, want one each", calls)
		}
	})
}

// TestWhatIsDrawnIsRecorded: permits drawn from a stock are permits that Redis knows of, each of
// them once.
func TestWhatIsDrawnIsRecorded(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		const uses = 20_000
		l := b.limited(guarded("1000000/1h"))
		for i := range uses {
			check(b, l.Acquire(b.Context(), 1))
			if i%100 == 99 {
				time.Sleep(100 * time.Microsecond) // less than a stock lasts
			}
		}
		if calls := l.c.Stats().Calls; calls > uses/10 {
			b.Errorf("%d calls: no stock was drawn from", calls)
		}
		check(b, l.c.Close())
		if had := 1_000_000 - b.available(b.limiter(b.client())); had < uses {
			b.Errorf("%d permits were used, Redis knows of %d", uses, had)
		}
	})
}

// TestRestsOfStocksComeBack: permits that were taken in advance and not used are available to
// others when the limit becomes scarce. Everything that Redis gives is used.
func TestRestsOfStocksComeBack(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := rate("1000/10s")
		r.Guard = ms(10)
		l := b.limited(r)
		granted := 0
		for range 160 { // a few in each half guard, so that there are stocks, and a rest of most is not used
			for range 7 + granted%5 {
				ok, err := l.TryAcquire(b.Context(), 1)
				check(b, err)
				if ok {
					granted++
				}
			}
			b.until(time.Since(b.begin) + 7*time.Millisecond)
		}
		if granted != 1000 {
			b.Errorf("%d permits were granted of a limit of 1000", granted)
		}
	})
}

// TestIdleClientKeepsNothing: what a client took in advance is there for a caller of its own that
// wants much at once, and for others soon after it was last asked for anything, however long the interval is.
func TestIdleClientKeepsNothing(t *testing.T) {
	late := guarded("4000/12h")
	late.Guard = time.Minute
	for _, r := range []Rate{guarded("10000/24h"), guarded("2000/1h"), guarded("800/1m"), late} {
		for name, of := range map[string]func(b *bench, l *Limiter) *Limiter{
			"itself": func(_ *bench, l *Limiter) *Limiter { return l },
			"others": func(b *bench, l *Limiter) *Limiter {
				time.Sleep(2 * time.Second)
				return b.limiter(b.client())
			},
		} {
			t.Run(r.String()+" "+name, func(t *testing.T) {
				t.Parallel()
				forEachRedis(t, func(b *bench) {
					l := b.limited(r)
					left := r.Permits
					var wg sync.WaitGroup
					for range 8 {
						left -= r.Permits / 32
						wg.Go(func() {
							for range r.Permits / 32 {
								check(b, l.Acquire(b.Context(), 1))
							}
						})
					}
					wg.Wait()
					if l = of(b, l); !b.try(l, left) {
						b.Errorf("%d of %d are left, and cannot be had: %d are available", left, r.Permits, b.available(l))
					}
				})
			})
		}
	}
}

// TestManyRestsComeBack: where a stock does not last long, there are more rests in a second than a client
// keeps. All of them go back.
func TestManyRestsComeBack(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := rate("100000/1h")
		r.Guard = ms(2)
		l := b.limited(r)
		for i := range 700 {
			for range 7 + i%5 {
				check(b, l.Acquire(b.Context(), 1))
			}
			time.Sleep(1100 * time.Microsecond)
		}
		used := l.c.Stats().Grants
		time.Sleep(2 * time.Second)
		if left := b.available(b.limiter(b.client())); left != r.Permits-used {
			b.Errorf("%d are available of %d, of which %d were used", left, r.Permits, used)
		}
	})
}

// restsOf leaves rests of stocks: few permits are used in each half guard, and never as many as before. It
// returns how many were used.
func restsOf(b *bench, l *Limiter) (used int64) {
	for range 30 {
		for range 7 + used%5 {
			check(b, l.Acquire(b.Context(), 1))
			used++
		}
		time.Sleep(7 * time.Millisecond)
	}
	return used
}

// TestCloseGivesBackOnce: a client that closes gives back what it took in advance, all of it and once: whoever
// else has permits keeps them.
func TestCloseGivesBackOnce(t *testing.T) {
	r := rate("1000/1h")
	r.Guard = ms(10)
	knows := func(b *bench, l *Limiter, used int64) {
		b.Helper()
		check(b, l.c.Close())
		other := b.limiter(b.client())
		config, err := other.Config(b.Context())
		check(b, err)
		if known := config.Permits - b.available(other); known != used {
			b.Errorf("%d were used, Redis knows of %d", used, known)
		}
	}
	t.Run("with rests", func(t *testing.T) {
		underFakeTime(t, func(b *bench) {
			l := b.limited(r)
			knows(b, l, restsOf(b, l))
		})
	})
	t.Run("after a denial", func(t *testing.T) { // others have what was left
		underFakeTime(t, func(b *bench) {
			l, others := b.limited(r), b.limiter(b.client())
			used := restsOf(b, l)
			for {
				if n := b.available(others); n > 0 {
					b.expectTry(others, n, true)
					used += n
				}
				time.Sleep(6 * time.Millisecond) // longer than a stock lasts
				if !b.try(l, 1) {
					break
				}
				used++
			}
			knows(b, l, used)
		})
	})
	t.Run("during a slow call", func(t *testing.T) { // the time of the rests is over when it is answered
		underFakeTime(t, func(b *bench) {
			var slowly atomic.Bool
			l := b.troubled(r, func(_ int64, send func() *redis.Cmd) *redis.Cmd {
				answer := send()
				if slowly.Load() {
					time.Sleep(500 * time.Millisecond)
				}
				return answer
			})
			used := restsOf(b, l)
			b.until(800 * time.Millisecond)
			slowly.Store(true)
			var wg sync.WaitGroup
			wg.Go(func() { _ = l.Acquire(b.Context(), 1) })
			time.Sleep(100 * time.Millisecond)
			slowly.Store(false)
			knows(b, l, used)
			wg.Wait()
		})
	})
	t.Run("while a call brings more", func(t *testing.T) {
		underFakeTime(t, func(b *bench) {
			r := guarded("10000/24h")
			l := b.troubled(r, during(1, 1000, slow(20*time.Millisecond)))
			var wg sync.WaitGroup
			var used atomic.Int64
			for range 50 {
				wg.Go(func() {
					for range 4 {
						if l.Acquire(b.Context(), 1) == nil {
							used.Add(1)
						}
					}
				})
			}
			time.Sleep(30 * time.Millisecond)
			check(b, l.c.Close())
			wg.Wait()
			knows(b, l, used.Load())
		})
	})
}

// TestRestsAreForThoseWhoWait: a caller of another client who waits for a limit gets what an idle client
// gives back, also if the guard is so long that nobody can have reserved anything yet.
func TestRestsAreForThoseWhoWait(t *testing.T) {
	for _, guard := range []time.Duration{ms(10), 10 * time.Minute} {
		t.Run(guard.String(), func(t *testing.T) {
			forEachRedis(t, func(b *bench) {
				r := rate("1000/1h")
				r.Guard = guard
				l, others := b.limited(r), b.limiter(b.client())
				used := restsOf(b, l)
				n := b.available(others)
				if used+n == r.Permits {
					b.Fatal("there are no rests")
				}
				b.expectTry(others, n, true)
				ctx, cancel := context.WithCancel(b.Context())
				defer cancel()
				defer time.AfterFunc(5*time.Second, cancel).Stop()
				check(b, others.Acquire(ctx, 1))
			})
		})
	}
}
