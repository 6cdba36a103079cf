package throttle

import (
	"cmp"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// stocked is a limiter whose client has taken 19 permits in advance, beside 20 that were used.
func stocked(b *bench, l *Limiter) *Limiter {
	b.Helper()
	r := rate("1000/1h")
	r.Guard = time.Second
	check(b, l.SetRate(b.Context(), r))
	for range 20 {
		check(b, l.Acquire(b.Context(), 1))
	}
	if n := b.available(b.limiter(b.client())); n != 1000-39 {
		b.Fatalf("%d permits are available, want 961: 19 are in stock", n)
	}
	return l
}

// TestChangesGiveStocksBack: what a client took in advance is there for all when the limit has
// changed, also if nobody asks that client again.
func TestChangesGiveStocksBack(t *testing.T) {
	for name, change := range map[string]func(ctx context.Context, l *Limiter) error{
		"pause": func(ctx context.Context, l *Limiter) error { return l.Pause(ctx, time.Millisecond) },
		"rate": func(ctx context.Context, l *Limiter) error {
			r, err := l.Config(ctx)
			r.KeepAlive = 2 * time.Hour
			return cmp.Or(err, second(l.UpdateRate(ctx, r)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				l := stocked(b, b.limiter(b.client()))
				check(b, change(b.Context(), l))
				time.Sleep(5 * time.Millisecond)
				check(b, l.Acquire(b.Context(), 1))
				time.Sleep(2 * time.Second)
				b.expectAvailable(b.limiter(b.client()), 1000-21)
			})
		})
	}
}

// TestOwnStockIsNoDenial: nobody is told no because of permits that his own client has in advance.
func TestOwnStockIsNoDenial(t *testing.T) {
	t.Run("large requests", func(t *testing.T) {
		underFakeTime(t, func(b *bench) {
			l := stocked(b, b.limiter(b.client()))
			for range 3 {
				b.expectTry(l, 250, true)
			}
			b.expectTry(l, 230, true)
			b.expectTry(l, 1, false)
		})
	})
	for name, ask := range map[string]func(ctx context.Context, l *Limiter) (bool, error){
		"TryAcquire":    func(ctx context.Context, l *Limiter) (bool, error) { return l.TryAcquire(ctx, 1) },
		"TryAcquireFor": func(ctx context.Context, l *Limiter) (bool, error) { return l.TryAcquireFor(ctx, 1, time.Second) },
		"patient": func(ctx context.Context, l *Limiter) (bool, error) {
			begin := time.Now()
			ok, err := l.TryAcquireFor(ctx, 1, 2*time.Hour)
			return ok && time.Since(begin) < time.Second, err
		},
		"Acquire": func(ctx context.Context, l *Limiter) (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			err := l.Acquire(ctx, 1)
			return err == nil, err
		},
		"Reserve": func(ctx context.Context, l *Limiter) (bool, error) {
			r, err := l.Reserve(ctx, 1, time.Second)
			return err == nil && r.OK(), err
		},
	} {
		t.Run("a stock, "+name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				l := stocked(b, b.limiter(b.clientOf(&distant{Scripter: b.rdb}))) // it cannot subscribe
				b.expectTry(b.limiter(b.client()), 961, true)
				time.Sleep(150 * time.Millisecond) // it may only be used while the configuration is known
				for range 19 {
					if ok, err := ask(b.Context(), l); !ok || err != nil {
						b.Fatalf("%v, %v: want a permit of the stock", ok, err)
					}
				}
				b.expectTry(l, 1, false)
			})
		})
		t.Run("rests, "+name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				r := rate("1000/1h")
				r.Guard = ms(10)
				l, others := b.limited(r), b.limiter(b.client())
				used := restsOf(b, l)
				n := b.available(others)
				if used+n == r.Permits {
					b.Fatal("there are no rests")
				}
				b.expectTry(others, n, true)
				for range r.Permits - used - n {
					if ok, err := ask(b.Context(), l); !ok || err != nil {
						b.Fatalf("%v, %v: want one of the rests", ok, err)
					}
				}
				b.expectTry(l, 1, false)
			})
		})
	}
}

// A change of the limit, of which a client hears with its next reply, leaves it what it had in advance.
func TestOwnStockAfterAChange(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l, other := stocked(b, b.limiter(b.clientOf(&distant{Scripter: b.rdb}))), b.limiter(b.client())
		b.expectTry(other, 961, true)
		r := must(other.Config(b.Context()))
		r.KeepAlive = 2 * time.Hour
		must(other.UpdateRate(b.Context(), r))
		time.Sleep(150 * time.Millisecond)
		b.expectTry(l, 1, true)
	})
}

// TestOwnStockIsForWhoWaitsFirst: a caller who finds nothing gets what his own client has in
// advance, before others who come later, and also if Redis announces nothing.
func TestOwnStockIsForWhoWaitsFirst(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := stocked(b, b.limiter(b.clientOf(&distant{Scripter: b.rdb}))) // it cannot subscribe
		b.expectTry(b.limiter(b.client()), 961, true)
		time.Sleep(150 * time.Millisecond)
		var served atomic.Int64
		var late atomic.Bool
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
		defer cancel()
		for i := range 25 {
			go func() {
				time.Sleep(time.Duration(i) * ms(20))
				if l.Acquire(ctx, 1) == nil && served.Add(1) != int64(i+1) {
					late.Store(true)
				}
			}()
		}
		<-ctx.Done()
		time.Sleep(time.Second)
		if n := served.Load(); n != 19 || late.Load() {
			b.Errorf("%d callers were served, want the first 19; out of order: %v", n, late.Load())
		}
	})
}

// callCounter counts the calls of one script.
type callCounter struct {
	redis.Scripter
	sha   string
	calls atomic.Int64
}

func (c *callCounter) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if sha == c.sha {
		c.calls.Add(1)
	}
	return c.Scripter.EvalSha(ctx, sha, keys, args...)
}

// TestNoStockThatComesLate: if round trips take longer than a stock lasts, nothing is taken in
// advance, and calls go the short way.
func TestNoStockThatComesLate(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := rate("100000/1s")
		r.Guard = ms(10)
		calls := &callCounter{Scripter: &distant{Scripter: b.rdb, roundTrip: ms(8)}, sha: script.Acquire.Hash()}
		l := b.limiter(b.clientOf(calls))
		check(b, l.SetRate(b.Context(), r))
		a := &arrivals{b: b}
		for range 64 {
			a.wg.Go(func() {
				for range 50 {
					check(b, l.Acquire(b.Context(), 1))
				}
			})
		}
		a.wg.Wait()
		if long, all := calls.calls.Load(), l.c.Stats().Calls; long > 10 || all > 120 {
			b.Errorf("%d of %d calls went the long way, want nearly none", long, all)
		}
	})
}

// TestTenantsUseStocks: where a limit has much more than anybody asks for, requests of tenants need
// as few calls as others do.
func TestTenantsUseStocks(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := rate("100000/1s")
		r.Guard = ms(10)
		l := b.limited(r)
		for range 1000 {
			check(b, l.For("a").Acquire(b.Context(), 1))
		}
		if calls := l.c.Stats().Calls; calls > 100 {
			b.Errorf("%d calls for 1000 requests of a tenant", calls)
		}
	})
}

// TestIdleClientCreatesNothing: what a client gives back does not bring a deleted limiter back.
func TestIdleClientCreatesNothing(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		r := rate("1000/1h")
		r.Guard = time.Second
		l := must(b.client().LimiterWithRate(b.name(), r))
		for range 20 {
			check(b, l.Acquire(b.Context(), 1))
		}
		must(b.limiter(b.client()).Delete(b.Context()))
		time.Sleep(2 * time.Second)
		check(b, l.c.Close())
		if keys := b.keys(); len(keys) > 0 {
			b.Errorf("keys are there again: %q", keys)
		}
	})
}

// TestIdleGroupGivesBack: what a group took in advance of its limits goes back, also if one of them is
// gone.
func TestIdleGroupGivesBack(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		c := b.client()
		stays, goes := must(c.Limiter(b.name()+":stays")), must(c.Limiter(b.name()+":goes"))
		check(b, stays.SetRate(b.Context(), guarded("10000/24h")))
		check(b, goes.SetRate(b.Context(), guarded("10000/24h")))
		g := must(c.Group(stays, goes))
		for range 200 {
			check(b, g.Acquire(b.Context(), 1))
		}
		other := must(b.client().Limiter(stays.Name()))
		if b.available(other) == 9800 {
			b.Fatal("nothing was taken in advance")
		}
		must(must(b.client().Limiter(goes.Name())).Delete(b.Context()))
		time.Sleep(2 * time.Second)
		b.expectAvailable(other, 9800)
	})
}
