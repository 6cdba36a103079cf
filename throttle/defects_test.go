package throttle

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// What goes wrong in Redisson's limiter and must not go wrong here: one test for each row of the
// list. Those about clocks are in defects_clock_test.go, those that need many waiters in
// defects_load_test.go.

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
		b.begin = time.Now()
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
		check(b, b.rdb.Del(b.Context(), l.keys()[1]).Err()) // the cached value
		b.expectAvailable(l, 6)
		b.expectTry(l, 7, false)
		b.expectTry(l, 6, true)
		check(b, b.rdb.Del(b.Context(), l.keys()[2]).Err()) // the log, and with it what is known of the usage
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
