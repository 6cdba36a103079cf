package throttle

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

func TestErrorsNameTheLimiter(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		ctx := b.Context()
		c := b.client()
		l := b.limiter(c)
		ended, end := context.WithCancel(ctx)
		end()
		absent := map[string]error{}
		_, absent["TryAcquire"] = l.TryAcquire(ctx, 1)
		absent["Acquire"] = l.Acquire(ctx, 1)
		_, absent["Reserve"] = l.Reserve(ctx, 1, time.Second)
		absent["Release"] = l.Release(ctx, 1)
		absent["Pause"] = l.Pause(ctx, time.Second)
		absent["Resume"] = l.Resume(ctx)
		absent["Pin"] = l.Pin(ctx)
		_, absent["Config"] = l.Config(ctx)
		_, absent["AvailablePermits"] = l.AvailablePermits(ctx)
		_, absent["Inspect"] = l.Inspect(ctx)
		for call, err := range absent {
			if !errors.Is(err, ErrNotInitialized) {
				b.Errorf("%s: %v", call, err)
			}
			b.expectError(err, ErrNotInitialized, l.name)
		}
		check(b, l.SetRate(ctx, rate("2/5s")))
		b.expectError(l.Acquire(ctx, 3), ErrExceedsRate, l.name)
		b.expectError(l.Acquire(ended, 1), context.Canceled, l.name)
		b.expectError(l.SetRate(ctx, Rate{}), ErrInvalidRate, l.name)
		b.expectTry(l, 2, true)
		late, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		b.expectError(l.Acquire(late, 1), ErrExceedsDeadline, l.name)
		if time.Since(b.begin) > ms(90) && b.fake != nil {
			b.Errorf("ErrExceedsDeadline came after %v", time.Since(b.begin))
		}
		check(b, c.Close())
		b.expectError(l.Acquire(ctx, 1), ErrClosed, l.name)
		_, err := l.TryAcquire(ctx, 1)
		b.expectError(err, ErrClosed, l.name)
		b.expectError(l.Release(ctx, 1), ErrClosed, l.name)
	})
}

func TestInvalidNames(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		c := b.client()
		for _, name := range []string{"", "a{b", "a}b", "{}a", "a\nb", "a\xffb", strings.Repeat("x", 513)} {
			if _, err := c.Limiter(name); !errors.Is(err, ErrInvalidName) {
				b.Errorf("Limiter(%q): %v", name, err)
			}
		}
		for _, name := range []string{"a", "a{b}c", "{a}", "Größe:x y", strings.Repeat("x", 512)} {
			if _, err := c.Limiter(name); err != nil {
				b.Errorf("Limiter(%q): %v", name, err)
			}
		}
	})
}

// Keys are Redisson's, byte for byte.
func TestKeys(t *testing.T) {
	for name, want := range map[string]script.Keys{
		"a":    {"a", "{a}:value", "{a}:permits", "{a}:value:id", "{a}:permits:id", "{a}:clients"},
		"a{b}": {"a{b}", "a{b}:value", "a{b}:permits", "a{b}:value:id", "a{b}:permits:id", "a{b}:clients"},
	} {
		if got := script.KeysOf(name, "id"); got != want {
			t.Errorf("keys of %q: %q", name, got)
		}
	}
}

func TestKeyOfAnotherType(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		ctx := b.Context()
		for i, holds := range []func(key string) error{
			func(key string) error { return b.rdb.Set(ctx, key, "x", 0).Err() },
			func(key string) error { return b.rdb.LPush(ctx, key, "x").Err() },
		} {
			l := b.limiter(b.client())
			for k, key := range l.keys()[:3] {
				if k == 1 && i == 0 {
					continue // the cached value is a string
				}
				check(b, b.rdb.Del(ctx, l.keys()[:]...).Err())
				if k > 0 {
					check(b, l.SetRate(ctx, rate("5/1s")))
				}
				check(b, holds(key))
				before := b.rdb.Dump(ctx, key).Val()
				_, err := l.TryAcquire(ctx, 1)
				b.expectError(err, ErrWrongType, l.name)
				b.expectError(l.Acquire(ctx, 1), ErrWrongType, l.name)
				b.expectError(l.Release(ctx, 1), ErrWrongType, l.name)
				_, err = l.AvailablePermits(ctx)
				b.expectError(err, ErrWrongType, l.name)
				if b.rdb.Dump(ctx, key).Val() != before {
					b.Errorf("%s was changed", key)
				}
			}
		}
	})
}

// TestRateMendsKeysOfAnotherType: whoever sets a rate removes keys that hold something else, and keeps the rest. TrySetRate, and a
// configuration file of a limiter that is pinned, change nothing.
func TestRateMendsKeysOfAnotherType(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		ctx := b.Context()
		l := b.limiter(b.client())
		five := rate("5/1h")
		for _, key := range []int{1, 2, 5} { // the value, the log, the clients
			for what, set := range map[string]func(Rate) error{
				"UpdateRate": func(r Rate) error { _, err := l.UpdateRate(ctx, r); return err },
				"ApplyRate":  func(r Rate) error { _, err := l.ApplyRate(ctx, r); return err },
				"SetRate":    func(r Rate) error { return l.SetRate(ctx, r) },
			} {
				for _, to := range []Rate{five, rate("7/1h")} {
					check(b, l.SetRate(ctx, five))
					b.expectTry(l, 2, true)
					check(b, b.rdb.Del(ctx, l.keys()[key]).Err())
					check(b, b.rdb.LPush(ctx, l.keys()[key], "x").Err())
					if _, err := l.TrySetRate(ctx, to); err != nil || b.rdb.Type(ctx, l.keys()[key]).Val() != "list" {
						b.Errorf("TrySetRate: %v, or it has changed %s", err, l.keys()[key])
					}
					check(b, l.Pin(ctx))
					if _, err := l.ApplyRate(ctx, to); err != nil || b.rdb.Type(ctx, l.keys()[key]).Val() != "list" {
						b.Errorf("ApplyRate of a pinned limiter: %v, or it has changed %s", err, l.keys()[key])
					}
					check(b, l.Unpin(ctx))
					if err := set(to); err != nil {
						b.Errorf("%s to %v, and another type of %s: %v", what, to, l.keys()[key], err)
						check(b, b.rdb.Del(ctx, l.keys()[key]).Err())
						continue
					}
					want := to.Permits
					if what != "SetRate" && key != 2 {
						want -= 2
					}
					b.expectAvailable(l, want)
					b.expectTry(l, want, true)
				}
			}
		}
	})
}

// TestRateMendsKeysOfClients: the same for the keys that each client has, whether the limit has permits for each client or not: its
// own client, and one that was seen.
func TestRateMendsKeysOfClients(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		ctx := b.Context()
		for _, kind := range []RateType{Overall, PerClient} {
			l, seen := b.limiter(b.client()), b.client()
			other, err := seen.Limiter(l.name)
			check(b, err)
			five, seven := rate("5/1h"), rate("7/1h")
			five.Type, seven.Type = kind, kind
			for _, key := range []string{l.keys()[3], l.keys()[4], other.keys()[3], other.keys()[4]} {
				check(b, l.SetRate(ctx, five))
				b.expectTry(l, 2, true)
				b.expectTry(other, 1, true)
				check(b, b.rdb.Del(ctx, key).Err())
				check(b, b.rdb.LPush(ctx, key, "x").Err())
				if _, err := l.UpdateRate(ctx, seven); err != nil {
					b.Errorf("UpdateRate of a limit that is %v, and another type of %s: %v", kind, key, err)
				}
				b.expectTry(l, 4, true)
				b.expectTry(other, 1, kind == PerClient)
			}
		}
	})
}

// TestRateMendsLeftovers: the same if the limiter itself is gone.
func TestRateMendsLeftovers(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		ctx := b.Context()
		l := b.limiter(b.client())
		five := rate("5/1h")
		for _, key := range l.keys()[1:5] {
			for what, set := range map[string]func() error{
				"TrySetRate": func() error { _, err := l.TrySetRate(ctx, five); return err },
				"ApplyRate":  func() error { _, err := l.ApplyRate(ctx, five); return err },
				"SetRate":    func() error { return l.SetRate(ctx, five) },
			} {
				check(b, b.rdb.Del(ctx, l.keys()...).Err())
				check(b, b.rdb.LPush(ctx, key, "x").Err())
				if err := set(); err != nil {
					b.Errorf("%s, and another type of %s: %v", what, key, err)
				}
				b.expectTry(l, 5, true)
			}
		}
	})
}

func TestDamagedLogIsServed(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		ctx := b.Context()
		l := b.limited(rate("5/1s"))
		now := float64(time.Now().UnixMilli())
		for i, member := range []string{"", "x", "\xff", "\x10short", "\x00\x01\x00\x00", strings.Repeat("y", 300)} {
			check(b, b.rdb.ZAdd(ctx, l.keys()[2], redis.Z{Score: now - float64(i), Member: member}).Err())
		}
		check(b, b.rdb.ZAdd(ctx, l.keys()[2], redis.Z{Score: now, Member: "\x02id\x02\x00\x00\x00"}).Err())
		check(b, b.rdb.Set(ctx, l.keys()[1], "not a number", 0).Err())
		b.expectAvailable(l, 3)
		b.expectTry(l, 3, true)
		b.expectTry(l, 1, false)
		check(b, l.Acquire(ctx, 5))
	})
}

func TestLimiterWithRateCreatesInTheScript(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		ctx := b.Context()
		c := b.client()
		l, err := c.LimiterWithRate(b.name(), rate("2/5s"))
		check(b, err)
		if keys := b.keys(); len(keys) != 0 {
			b.Fatalf("keys %v before use", keys)
		}
		b.expectTry(l, 2, true)
		b.expectTry(l, 1, false)
		if r, err := l.Config(ctx); err != nil || r != rate("2/5s") {
			b.Errorf("config %+v, %v", r, err)
		}
		other, err := b.client().LimiterWithRate(b.name(), rate("7/5s"))
		check(b, err)
		b.expectTry(other, 1, false) // it is there already
		b.until(ms(10))
		if ok, err := l.Delete(ctx); !ok || err != nil {
			b.Fatalf("Delete: %v, %v", ok, err)
		}
		b.expectTry(other, 7, true)
		b.until(ms(20))
		_, err = l.Delete(ctx)
		check(b, err)
		check(b, l.Pause(ctx, ms(200)))
		b.expectTry(l, 1, false)
	})
}

func TestPinnedLimitersAreLeftAlone(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		ctx := b.Context()
		l := b.limiter(b.client())
		apply := func(r Rate, want bool, permits int64) {
			b.Helper()
			if ok, err := l.ApplyRate(ctx, r); ok != want || err != nil {
				b.Fatalf("ApplyRate(%v) = %v, %v", r, ok, err)
			}
			if got, err := l.Config(ctx); err != nil || got.Permits != permits {
				b.Fatalf("rate %v, %v; want %d permits", got, err, permits)
			}
		}
		apply(rate("10/5s"), true, 10)
		b.expectTry(l, 4, true)
		apply(rate("20/5s"), true, 20)
		b.expectAvailable(l, 16)
		check(b, l.Pin(ctx))
		apply(rate("5/5s"), false, 20)
		if u, err := l.Inspect(ctx); err != nil || !u.Pinned {
			b.Errorf("%+v, %v", u, err)
		}
		check(b, l.Unpin(ctx))
		apply(rate("5/5s"), true, 5)
	})
}

func TestPauseAndResume(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		ctx := b.Context()
		l := b.limited(rate("5/1s"))
		other := b.limiter(b.client())
		check(b, l.Pause(ctx, time.Minute))
		b.expectTry(other, 1, false)
		b.expectAvailable(other, 0)
		check(b, l.Pause(ctx, time.Second)) // the longer one stands
		u, err := other.Inspect(ctx)
		check(b, err)
		if u.Paused < 59*time.Second || u.NextFree < u.Paused {
			b.Errorf("paused for %v, next free in %v", u.Paused, u.NextFree)
		}
		check(b, other.Resume(ctx))
		b.expectTry(l, 1, true)
		start := time.Now()
		check(b, l.Pause(ctx, ms(200)))
		check(b, other.Acquire(ctx, 1))
		if took := time.Since(start); took < ms(190) || b.fake != nil && took > ms(201) {
			b.Errorf("a pause of 200ms held for %v", took)
		}
	})
}

func TestReservationsAreGivenBack(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		ctx := b.Context()
		l := b.limited(rate("4/2s"))
		b.expectTry(l, 4, true)
		r, err := l.Reserve(ctx, 3, 5*time.Second)
		check(b, err)
		if !r.OK() || r.Delay() > 2*time.Second || r.Delay() < ms(1800) {
			b.Fatalf("reserved: %v, in %v", r.OK(), r.Delay())
		}
		late, err := l.Reserve(ctx, 4, 3*time.Second)
		check(b, err)
		if late.OK() || late.Limiter() != l.name || late.Delay() < 3*time.Second {
			b.Fatalf("reserved out of reach: %v, in %v", late.OK(), late.Delay())
		}
		b.expectError(late.Wait(ctx), ErrExceedsDeadline, l.name)
		u, err := l.Inspect(ctx)
		check(b, err)
		if u.Reserved != 3 || u.Used != 4 {
			b.Errorf("%+v", u)
		}
		r.Cancel()
		r.Cancel()
		if u, err = l.Inspect(ctx); err != nil || u.Reserved != 0 {
			b.Errorf("%+v, %v", u, err)
		}
		again, err := l.Reserve(ctx, 4, 3*time.Second)
		check(b, err)
		if !again.OK() {
			b.Errorf("the permits of the cancelled reservation are not free: %v", again.Delay())
		}
		check(b, again.Wait(ctx))
		again.Cancel() // too late to matter
		b.expectTry(l, 1, false)
	})
}

func TestPerClientLimitsAreSeparate(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limited(perClient("3/5s"))
		for range 3 {
			other := b.limiter(b.client())
			b.expectTry(other, 3, true)
			b.expectTry(other, 1, false)
			if ttl := b.rdb.PTTL(b.Context(), other.keys()[4]).Val(); ttl < 5*time.Second || ttl > 8*time.Second {
				b.Errorf("the log of a client expires in %v", ttl)
			}
		}
		b.expectTry(l, 3, true)
		u, err := l.Inspect(b.Context())
		check(b, err)
		if len(u.Clients) != 4 {
			b.Errorf("clients %v", u.Clients)
		}
	})
}
