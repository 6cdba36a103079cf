package throttle

import (
	"errors"
	"math"
	"sync"
	"testing"
	"time"
)

// ample is a limit that one caller never reaches, as fast.lua serves it.
func ample() Rate { return rate("1000/1s") }

// The last reply of a queue is kept for ten seconds after its call, whichever script served that,
// however long the queue has been in use.
func TestLastReplyIsKept(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(ample())
		for i := range 400 {
			b.until(time.Duration(i) * 77 * time.Millisecond)
			check(b, l.Acquire(b.Context(), 1))
			if ttl := b.rdb.PTTL(b.Context(), b.replyKey(l)).Val(); ttl < 10*time.Second {
				b.Fatalf("call %d: its reply is kept for %v", i, ttl)
			}
		}
	})
}

// The last reply of a queue expires soon after its limiter, even if that is busy: once the call cannot come again.
func TestLastReplyExpiresWithItsLimiter(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limited(rate("20/1h"))
		check(b, l.Acquire(b.Context(), 1))
		l.Expire(b.Context(), 5*time.Second)
		for range 8 {
			check(b, l.Acquire(b.Context(), 1))
			if ttl := b.rdb.PTTL(b.Context(), b.replyKey(l)).Val(); ttl > 11*time.Second {
				b.Fatalf("the reply is kept for %v, its limiter for 5s", ttl)
			}
		}
	})
}

// A cached value that cannot be right is no error: it is computed again from the log. A value
// that Redis itself would not have written is no error either: it counts until the next refresh.
func TestDamagedValueIsNoError(t *testing.T) {
	recomputed := map[string]bool{
		"x": true, "": true, "0.5": true, "12345678901234567890": true,
		"007": false, "+7": false, " 7": false, "-0": false, "0x7": false,
	}
	for damaged, recomputed := range recomputed {
		t.Run(damaged, func(t *testing.T) {
			forEachRedis(t, func(b *bench) {
				l := b.limited(ample())
				for range 3 {
					check(b, l.Acquire(b.Context(), 1))
				}
				check(b, b.rdb.Set(b.Context(), l.keys()[1], damaged, 0).Err())
				check(b, l.Acquire(b.Context(), 1))
				if got := b.rdb.Get(b.Context(), l.keys()[1]).Val(); recomputed && got != "996" {
					b.Errorf("the value is %q, want 996", got)
				}
			})
		})
	}
}

// A keepAliveTime that a Redisson client sets while the limit is far from binding is renewed from
// then on, by any client that asks 100 ms later.
func TestKeepAliveOfOthersIsHonoured(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limited(ample())
		for range 3 {
			check(b, l.Acquire(b.Context(), 1))
		}
		check(b, b.rdb.HSet(b.Context(), l.name, "keepAliveTime", 5000).Err())
		check(b, b.rdb.PExpire(b.Context(), l.name, 2*time.Second).Err())
		b.begin = time.Now()
		b.until(100*time.Millisecond + ms(50))
		check(b, l.Acquire(b.Context(), 1))
		for _, key := range l.keys()[:3] {
			if ttl := b.rdb.PTTL(b.Context(), key).Val(); ttl < 4*time.Second || ttl > 5*time.Second {
				b.Errorf("%s lives for %v, want the 5s of its keepAliveTime", key, ttl)
			}
		}
	})
}

// Sums of what can never be granted may be small numbers, or negative.
func TestHugeRequestsTogether(t *testing.T) {
	for _, n := range []int64{1 << 62, math.MaxInt64, 1001} {
		underFakeTime(t, func(b *bench) {
			l := b.limited(ample())
			for range 3 {
				check(b, l.Acquire(b.Context(), 1))
			}
			var wg sync.WaitGroup
			for range 5 { // four of them in one call
				wg.Go(func() {
					if err := l.Acquire(b.Context(), n); !errors.Is(err, ErrExceedsRate) {
						b.Errorf("Acquire(%d): %v", n, err)
					}
				})
			}
			wg.Wait()
			check(b, l.Acquire(b.Context(), 1))
			b.expectAvailable(l, 996)
			if got := b.rdb.Get(b.Context(), l.keys()[1]).Val(); got != "996" {
				b.Errorf("the value is %s, want 996", got)
			}
		})
	}
}

// A cached value that somebody made too low delays nobody for long: neither a client that asks
// now and then, nor one that waits.
func TestLowValueHeals(t *testing.T) {
	t.Run("rarely used", func(t *testing.T) {
		underFakeTime(t, func(b *bench) {
			l := b.limited(guarded("1000/24h"))
			b.expectTry(l, 1, true)
			b.expectTry(l, 1, true)
			check(b, b.rdb.Set(b.Context(), l.keys()[1], "0", 0).Err())
			no := 0
			for range 16 {
				if !b.try(l, 1) {
					no++
				}
				time.Sleep(time.Minute)
			}
			if no > 1 {
				b.Errorf("%d of 16 refused over 16 minutes, and %d of 1000 are free", no, b.available(l))
			}
		})
	})
	t.Run("who waits", func(t *testing.T) {
		underFakeTime(t, func(b *bench) {
			l := b.limited(guarded("1000/24h"))
			other := b.limiter(b.client())
			b.expectTry(l, 1, true)
			b.expectTry(other, 1, true)
			check(b, b.rdb.Set(b.Context(), l.keys()[1], "0", 0).Err())
			done := make(chan time.Duration)
			go func() {
				check(b, l.Acquire(b.Context(), 1))
				done <- time.Since(b.begin)
			}()
			for range 100 {
				time.Sleep(time.Second)
				b.try(other, 1)
			}
			free := b.available(l)
			if took := <-done; took > 20*time.Second {
				b.Errorf("it waited %v, while the others had permits: %d of 1000 were free after 100 s", took, free)
			}
		})
	})
}
