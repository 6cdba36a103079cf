package throttle

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// What goes wrong in Redisson's limiter and must not here: one test for each
// row of the list, in its order.

func TestD1LoweringKeepsUsage(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("10/1s"))
		var u uses
		ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for l.Acquire(ctx, 1) == nil {
					u.now()
				}
			})
		}
		b.until(ms(5500))
		if ok, err := l.UpdateRate(b.Context(), rate("5/1s")); !ok || err != nil {
			b.Errorf("UpdateRate: %v, %v", ok, err)
		}
		wg.Wait()
		var after uses
		for _, at := range u.at {
			if at.Sub(b.begin) > ms(6000) {
				after.at = append(after.at, at)
			}
		}
		if most := after.busiest(time.Second); most != 5 || u.busiest(time.Second) != 10 {
			b.Errorf("up to %d a second after lowering the rate to 5, %d before", most, u.busiest(time.Second))
		}
	})
}

// repeater sends every script twice, as a client does that lost the reply.
type repeater struct{ redis.Scripter }

func (r repeater) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	r.Scripter.EvalSha(ctx, sha, keys, args...)
	return r.Scripter.EvalSha(ctx, sha, keys, args...)
}

func (r repeater) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	r.Scripter.Eval(ctx, script, keys, args...)
	return r.Scripter.Eval(ctx, script, keys, args...)
}

func TestD2RepeatedScriptChargesOnce(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limiter(b.clientOf(repeater{b.rdb}))
		check(b, l.SetRate(b.Context(), rate("10/5s")))
		for left := int64(9); left >= 0; left-- {
			b.expectTry(l, 1, true)
			b.expectAvailable(l, left)
		}
		b.expectTry(l, 1, false)
		check(b, l.Release(b.Context(), 3))
		b.expectAvailable(l, 3)
	})
}

func TestD3ReleaseRefundsOnce(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limited(rate("10/2s"))
		b.expectTry(l, 10, true)
		check(b, l.Release(b.Context(), 5))
		b.expectTry(l, 5, true)
		b.expectTry(l, 1, false)
		b.until(ms(2050))
		b.expectTry(l, 10, true)
		b.expectTry(l, 1, false)
	})
}

func TestD4ChangesReachEveryClient(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		one := b.limited(perClient("5/5s"))
		two := b.limiter(b.client())
		b.expectTry(one, 2, true)
		b.expectTry(two, 3, true)
		one.UpdateRate(b.Context(), perClient("10/5s"))
		b.expectTry(two, 8, false)
		b.expectTry(two, 7, true)
		one.UpdateRate(b.Context(), perClient("4/5s"))
		b.expectTry(two, 1, false)
		b.expectAvailable(one, 2)
		check(b, one.SetRate(b.Context(), perClient("3/5s")))
		b.expectTry(two, 3, true)
		b.expectTry(two, 1, false)
	})
}

func TestD5LostKeysHeal(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limited(rate("10/5s"))
		b.expectTry(l, 4, true)
		check(b, b.rdb.Del(b.Context(), l.keys[1]).Err()) // the cached value
		b.expectAvailable(l, 6)
		b.expectTry(l, 7, false)
		b.expectTry(l, 6, true)
		check(b, b.rdb.Del(b.Context(), l.keys[2]).Err()) // the log, and with it what is known of the usage
		b.expectAvailable(l, 10)
		b.expectTry(l, 10, true)
		b.expectTry(l, 1, false)
	})
}

func TestD6LostConfigKeepsUsage(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limited(rate("100/5s"))
		b.expectTry(l, 3, true)
		check(b, b.rdb.Del(b.Context(), l.name).Err())
		b.until(ms(10))
		_, err := l.TryAcquire(b.Context(), 1)
		b.expectError(err, ErrNotInitialized, l.name)
		if ok, err := l.TrySetRate(b.Context(), rate("5/5s")); !ok || err != nil {
			b.Fatalf("TrySetRate: %v, %v", ok, err)
		}
		b.expectTry(l, 3, false)
		b.expectTry(l, 2, true)
		b.expectTry(l, 1, false)
	})
}

func TestD7NoPermitsIsAnError(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limited(rate("10/5s"))
		for _, n := range []int64{0, -5} {
			_, err := l.TryAcquire(b.Context(), n)
			b.expectError(err, ErrInvalidPermits, l.name)
			b.expectError(l.Acquire(b.Context(), n), ErrInvalidPermits, l.name)
		}
		b.expectAvailable(l, 10)
	})
}

// Here no client's clock takes part; an entry that another's clock has put far
// ahead delays for an interval, but not until then.
func TestD8ForeignClocksDoNotBlock(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("10/1s"))
		ahead := time.Now().Add(time.Hour).UnixMicro()
		check(b, b.rdb.ZAdd(b.Context(), l.keys[2], redis.Z{Score: float64(ahead) / 1000, Member: "\x02ab\x0a\x00\x00\x00"}).Err())
		check(b, b.rdb.Del(b.Context(), l.keys[1]).Err())
		b.expectTry(l, 1, false)
		check(b, l.Acquire(b.Context(), 10))
		if took := time.Since(b.begin); took != time.Second {
			b.Errorf("an entry of another clock delayed for %v", took)
		}
	})
}

func TestD9ExpiryFollowsTheConfiguration(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		ctx := b.Context()
		l := b.limited(kept(rate("10/1s"), time.Second))
		expires := func(want bool) {
			b.Helper()
			for _, key := range b.keys() {
				if ttl := b.rdb.PTTL(ctx, key).Val(); ttl >= 0 != want {
					b.Fatalf("%s expires in %v, want it to expire: %v", key, ttl, want)
				}
			}
		}
		b.expectTry(l, 1, true)
		expires(true)
		l.UpdateRate(ctx, rate("10/1s"))
		b.expectTry(l, 1, true)
		expires(false)
		check(b, l.SetRate(ctx, kept(rate("10/1s"), time.Second)))
		b.expectTry(l, 1, true)
		expires(true)
		check(b, l.SetRate(ctx, rate("10/1s")))
		b.expectTry(l, 1, true)
		expires(false)
		l.Expire(ctx, time.Minute)
		expires(true)
		if ok, err := l.ClearExpire(ctx); !ok || err != nil {
			b.Fatalf("ClearExpire: %v, %v", ok, err)
		}
		b.expectTry(l, 1, true)
		expires(false)
		if ok, err := l.ClearExpire(ctx); ok || err != nil {
			b.Fatalf("ClearExpire where nothing expires: %v, %v", ok, err)
		}
	})
}

func TestD10AskingChangesNothing(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limited(rate("10/1s"))
		b.expectAvailable(l, 10)
		if keys := b.keys(); len(keys) != 1 {
			b.Errorf("asking left keys %v", keys)
		}
	})
}

func TestD11DeadClientsLeaveNothing(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limited(perClient("5/1s"))
		for range 3 {
			c := b.client()
			b.expectTry(b.limiter(c), 1, true)
			check(b, c.Close())
		}
		if ok, err := l.UpdateRate(b.Context(), rate("5/1s")); !ok || err != nil {
			b.Fatalf("UpdateRate: %v, %v", ok, err)
		}
		if keys := b.keys(); len(keys) != 1 {
			b.Errorf("a change of type left %v", keys)
		}
		check(b, l.SetRate(b.Context(), perClient("5/1s")))
		b.expectTry(b.limiter(b.client()), 1, true)
		if ok, err := l.Delete(b.Context()); !ok || err != nil {
			b.Fatalf("Delete: %v, %v", ok, err)
		}
		if keys := b.keys(); len(keys) != 0 {
			b.Errorf("Delete left %v", keys)
		}
	})
	t.Run("unasked", func(t *testing.T) {
		underFakeTime(t, func(b *bench) {
			check(b, b.limited(perClient("5/1s")).SetRate(b.Context(), perClient("5/1s")))
			for range 20 {
				c := b.client()
				b.expectTry(b.limiter(c), 1, true)
				check(b, c.Close())
			}
			b.until(2 * time.Minute)
			if keys := b.keys(); len(keys) != 1 {
				b.Errorf("clients that came and went left %v", keys)
			}
		})
	})
}

func TestD12BigRequestsAreServedInTurn(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("10/1s"))
		ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		var big uses
		for range 20 {
			wg.Go(func() {
				for l.Acquire(ctx, 1) == nil {
				}
			})
		}
		wg.Go(func() {
			for l.Acquire(ctx, 10) == nil {
				big.now()
			}
		})
		wg.Wait()
		if len(big.at) < 5 {
			b.Errorf("a request for 10 of 10/1s was served %d times in 20s among 20 for 1", len(big.at))
		}
	})
}

func TestD13WaitersShareCalls(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("50/1s"))
		before := l.c.Stats().Calls
		var wg sync.WaitGroup
		for range 300 {
			wg.Go(func() {
				if err := l.Acquire(b.Context(), 1); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		if calls := l.c.Stats().Calls - before; calls > 150 {
			b.Errorf("%d calls for 300 permits", calls)
		}
	})
}

func TestD14LogStaysSmall(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limited(Rate{Permits: 100_000, Interval: time.Minute})
		for range 3000 {
			b.expectTry(l, 1, true)
		}
		n, err := b.rdb.ZCard(b.Context(), l.keys[2]).Result()
		check(b, err)
		if n > 800 {
			b.Errorf("%d entries for 3000 permits", n)
		}
		if left := b.available(l); left > 97_000 || left < 97_000-100_000/stockShare {
			b.Errorf("%d permits left", left) // some may be in stock
		}
	})
}
