package throttle

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// recording is a Scripter that can send its latest call again.
type recording struct {
	redis.Scripter
	again func() error
}

func (r *recording) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	r.again = func() error { return r.Scripter.EvalSha(ctx, sha, keys, args...).Err() }
	return r.Scripter.EvalSha(ctx, sha, keys, args...)
}

// A call that comes again while it may be served charges once, even if a limiter was kept alive
// for less than that and has gone: the limiter is not created again, and those beside it are not
// charged again.
func TestRepeatOutlivesKeepAlive(t *testing.T) {
	for _, group := range []string{"alone", "in a group"} {
		for way, calls := range map[string]int64{"first call": 1, "later call": 4} {
			t.Run(group+"/"+way, func(t *testing.T) {
				underFakeTime(t, func(b *bench) {
					way := &recording{Scripter: b.rdb}
					c := b.clientOf(way)
					b.loadScripts()
					long := must(c.LimiterWithRate("long", kept(rate("100/1m"), time.Hour)))
					asks := []*Limiter{must(c.LimiterWithRate("short", kept(rate("100/1s"), time.Second)))}
					if group == "in a group" {
						asks = append(asks, long)
					} else {
						check(b, long.Acquire(b.Context(), calls))
					}
					g := must(c.Group(asks...))
					for range calls {
						check(b, g.Acquire(b.Context(), 1))
					}
					again := way.again
					time.Sleep(5 * time.Second)
					check(b, again())
					b.expectAvailable(long, 100-calls)
					if n := b.rdb.Exists(b.Context(), "short").Val(); n > 0 {
						b.Error("the limiter that was gone is there again")
					}
				})
			})
		}
	}
}

// The same if others keep the limiter alive.
func TestRepeatWhileOthersKeepAlive(t *testing.T) {
	for name, calls := range map[string]int{"first call": 1, "later call": 4} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				r := kept(rate("100/1s"), time.Second)
				way := &recording{Scripter: b.rdb}
				b.loadScripts()
				l := must(b.clientOf(way).LimiterWithRate("short", r))
				for range calls {
					check(b, l.Acquire(b.Context(), 1))
				}
				again := way.again
				other := must(b.client().LimiterWithRate("short", r))
				for range 10 {
					time.Sleep(ms(500))
					check(b, other.Acquire(b.Context(), 1))
				}
				check(b, again())
				b.expectAvailable(other, 100-2)
			})
		})
	}
}

// The same in a group, if a limiter expires because somebody set an expiry.
func TestRepeatOutlivesExpiry(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		way := &recording{Scripter: b.rdb}
		c := b.clientOf(way)
		b.loadScripts()
		short, long := must(c.LimiterWithRate("short", rate("100/1s"))), must(c.LimiterWithRate("long", rate("100/24h")))
		g := must(c.Group(short, long))
		for range 3 {
			check(b, g.Acquire(b.Context(), 1))
			time.Sleep(time.Second)
		}
		must(short.Expire(b.Context(), ms(300)))
		check(b, g.Acquire(b.Context(), 1)) // its expiry is known
		check(b, g.Acquire(b.Context(), 1))
		again := way.again
		time.Sleep(ms(400))
		check(b, again())
		b.expectAvailable(long, 100-5)
	})
}

// A call that comes again is served once, even if its limiter was to expire before that, and lives on.
func TestRepeatAfterClearExpire(t *testing.T) {
	for name, tt := range map[string]struct {
		call func(b *bench, l *Limiter) error
		left int64
	}{
		"Acquire": {func(b *bench, l *Limiter) error { return l.Acquire(b.Context(), 1) }, 89},
		"Release": {func(b *bench, l *Limiter) error { return l.Release(b.Context(), 1) }, 91},
	} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				way := &recording{Scripter: b.rdb}
				b.loadScripts()
				l := must(b.clientOf(way).LimiterWithRate("limit", rate("100/1m")))
				check(b, l.Acquire(b.Context(), 10))
				must(l.Expire(b.Context(), ms(300)))
				check(b, tt.call(b, l))
				again := way.again
				must(l.ClearExpire(b.Context()))
				time.Sleep(ms(400))
				check(b, again())
				b.expectAvailable(l, tt.left)
			})
		})
	}
}

// A call that comes again is known, even if the limiter is kept alive only since then.
func TestRepeatFromBeforeAKeepAlive(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		way := &recording{Scripter: b.rdb}
		b.loadScripts()
		l := must(b.clientOf(way).LimiterWithRate("limit", rate("100/1m")))
		check(b, l.Acquire(b.Context(), 1))
		again := way.again
		must(l.UpdateRate(b.Context(), kept(rate("100/1m"), time.Minute)))
		must(l.UpdateRate(b.Context(), kept(rate("100/100ms"), time.Second)))
		for range 10 {
			check(b, l.Acquire(b.Context(), 1))
			time.Sleep(ms(100))
		}
		other := must(b.client().LimiterWithRate("limit", kept(rate("100/100ms"), time.Second)))
		for range 12 {
			check(b, other.Acquire(b.Context(), 1))
			time.Sleep(ms(200))
		}
		b.expectAvailable(other, 100)
		check(b, again())
		b.expectAvailable(other, 100)
	})
}

// Who takes a keep-alive back changes nothing else: what is reserved stays so.
func TestKeepAliveTakenBackKeepsReservations(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limited(kept(rate("2/1m"), time.Hour))
		b.expectTry(l, 2, true)
		if r := must(l.Reserve(b.Context(), 1, time.Hour)); !r.OK() {
			b.Fatal("nothing is reserved")
		}
		if ok, err := l.ClearExpire(b.Context()); !ok || err != nil {
			b.Fatalf("ClearExpire: %v, %v", ok, err)
		}
		b.expectTry(b.limiter(b.client()), 1, false)
		if u := must(l.Inspect(b.Context())); u.Reserved != 1 || u.Rate.KeepAlive != 0 {
			b.Errorf("%d reserved, want 1; kept alive for %v, want 0", u.Reserved, u.Rate.KeepAlive)
		}
	})
}
