package throttle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/testkit"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// sharedCalls makes calls that several lines share go wrong.
type sharedCalls struct {
	fault func(ctx context.Context, cmd *redis.Cmd, send func() error) error
	mu    sync.Mutex
	n     int // how many there were
}

func (h *sharedCalls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *sharedCalls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *sharedCalls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c, ok := cmd.(*redis.Cmd)
		if !ok || c.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		time.Sleep(time.Millisecond / 4) // as far away as a real Redis, so that others gather
		if c.Args()[1] != script.Many.Hash() {
			return next(ctx, cmd)
		}
		h.mu.Lock()
		h.n++
		h.mu.Unlock()
		if h.fault == nil {
			return next(ctx, cmd)
		}
		return h.fault(ctx, c, func() error { return next(ctx, cmd) })
	}
}

// many are limiters of one Client that were used once.
func many(tb testing.TB, c *Client, n int, name string, r Rate) []*Limiter {
	tb.Helper()
	ls := make([]*Limiter, n)
	for i := range ls {
		var err error
		ls[i], err = c.LimiterWithRate(fmt.Sprintf(name, i), r)
		check(tb, err)
		check(tb, ls[i].Acquire(context.Background(), 1))
	}
	return ls
}

// atOnce acquires one permit of each limiter, all at the same time.
func atOnce(ls []*Limiter) []error {
	errs := make([]error, len(ls))
	var wg sync.WaitGroup
	for i, l := range ls {
		wg.Go(func() { errs[i] = l.Acquire(context.Background(), 1) })
	}
	wg.Wait()
	return errs
}

// Callers that ask for different limiters at the same time share a few calls, also if the
// limiters disappear when nobody uses them.
func TestManyLimitersShareCalls(t *testing.T) {
	for name, keep := range map[string]time.Duration{"lasting": 0, "kept alive": time.Minute} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				c := b.client()
				ls := many(b, c, 64, "many:%d", kept(ample(), keep))
				b.rdb.AddHook(new(sharedCalls))
				before := c.Stats().Calls
				check(b, errors.Join(atOnce(ls)...))
				if n := c.Stats().Calls - before; n > 8 {
					b.Errorf("%d calls for 64 limiters", n)
				}
				for _, l := range ls {
					b.expectAvailable(l, 998)
				}
			})
		})
	}
}

// A limiter that is kept alive disappears when nobody has used it for that long, or a sixteenth
// sooner, and not while it is used, whichever script served it.
func TestKeepAliveCountsFromTheLatestUse(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		const keep = 10 * time.Second
		c := b.client()
		ls := many(b, c, 3, "kept:%d", kept(ample(), keep))
		b.rdb.AddHook(new(sharedCalls))
		for range 30 {
			time.Sleep(ms(700))
			check(b, errors.Join(atOnce(ls)...))
			for _, l := range ls {
				for _, key := range l.keys()[:3] {
					if ttl := b.rdb.PTTL(b.Context(), key).Val(); ttl < keep*15/16-ms(1) || ttl > keep {
						b.Fatalf("%s lives for %v, want the %v of its keep-alive", key, ttl, keep)
					}
				}
			}
		}
		time.Sleep(keep + ms(40))
		for _, l := range ls {
			if n := b.rdb.Exists(b.Context(), l.keys()...).Val(); n > 0 {
				b.Errorf("%d keys of %s are still there", n, l.Name())
			}
		}
	})
}

// A log that somebody emptied is a new key, which has to expire as well, whoever writes it next:
// with others in one call, or alone.
func TestEmptiedLogIsKeptAlive(t *testing.T) {
	for name, n := range map[string]int{"shared": 8, "alone": 1} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				c := b.client()
				ls := many(b, c, n, "emptied:%d", kept(ample(), time.Minute))
				if n > 1 {
					b.rdb.AddHook(new(sharedCalls))
				}
				check(b, errors.Join(atOnce(ls)...))
				other := b.client()
				for _, l := range ls {
					check(b, must(other.Limiter(l.Name())).Release(b.Context(), 2))
					if n := b.rdb.Exists(b.Context(), l.keys()[2]).Val(); n > 0 {
						b.Fatalf("the log of %s is there", l.Name())
					}
				}
				check(b, errors.Join(atOnce(ls)...))
				for _, l := range ls {
					for _, key := range l.keys()[:3] {
						if ttl := b.rdb.PTTL(b.Context(), key).Val(); ttl <= 0 || ttl > time.Minute {
							b.Errorf("%s lives for %v, want at most a minute", key, ttl)
						}
					}
				}
			})
		})
	}
}

// The next check sees what a Redisson client changes, even if the new number is a prefix of the
// old one.
func TestSharedCallsSeeWhatRedissonChanges(t *testing.T) {
	for field, v := range map[string]int{"rate": 100, "interval": 100, "keepAliveTime": 6000} {
		t.Run(field, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				ls := many(b, b.client(), 8, "theirs:%d", kept(ample(), time.Minute))
				b.rdb.AddHook(new(sharedCalls))
				check(b, errors.Join(atOnce(ls)...))
				for _, l := range ls {
					check(b, b.rdb.HSet(b.Context(), l.Name(), field, v).Err())
				}
				time.Sleep(ms(110))
				check(b, errors.Join(atOnce(ls)...))
				for _, l := range ls {
					h := b.rdb.HGetAll(b.Context(), l.Name()).Val()
					want := strings.Join([]string{h["rate"], h["interval"], h["type"], h["keepAliveTime"], ""}, ":")
					if !strings.HasPrefix(h["seal"], want) {
						b.Errorf("%s is known as %s, want %s", l.Name(), h["seal"], want)
					}
				}
			})
		})
	}
}

// A call that is served late relies on no log that is about to disappear: what it grants is known
// for as long as it counts.
func TestLateCallRenewsItsLimiter(t *testing.T) {
	for name, n := range map[string]int{"shared": 8, "alone": 1} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				const interval, keep = 2 * time.Second, 3 * time.Second
				c := b.client()
				r := kept(ample(), keep)
				r.Interval = interval
				ls := many(b, c, n, "late:%d", r)
				b.rdb.AddHook(new(sharedCalls))
				check(b, errors.Join(atOnce(ls)...))
				b.rdb.AddHook(&lateCalls{until: time.Now().Add(ms(100)), delay: keep - ms(500), served: func(cmd redis.Cmder) {
					for _, l := range ls {
						if !slices.Contains(cmd.Args(), any(l.keys()[2])) {
							continue
						}
						for _, key := range l.keys()[:3] {
							if ttl := b.rdb.PTTL(b.Context(), key).Val(); ttl < interval {
								b.Errorf("%s lives for %v after a use, which counts for %v", key, ttl, interval)
							}
						}
					}
				}})
				check(b, errors.Join(atOnce(ls)...))
			})
		})
	}
}

// lateCalls makes the scripts that are called until some time wait before Redis serves them.
type lateCalls struct {
	sharedCalls
	until  time.Time
	delay  time.Duration
	served func(redis.Cmder)
}

func (h *lateCalls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" || time.Now().After(h.until) {
			return next(ctx, cmd)
		}
		time.Sleep(h.delay)
		err := next(context.WithoutCancel(ctx), cmd)
		h.served(cmd)
		return err
	}
}

// In a group each limiter lives on, whatever is next to it.
func TestGroupIsKeptAlive(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		long, short := kept(ample(), time.Hour), kept(ample(), 10*time.Second)
		c := b.client()
		ls := []*Limiter{must(c.LimiterWithRate("long", long)), must(c.LimiterWithRate("short", short)), must(c.LimiterWithRate("other", short))}
		g := must(c.Group(ls...))
		for range 30 {
			check(b, g.Acquire(context.Background(), 1))
			time.Sleep(ms(7000))
			for _, l := range ls {
				if b.rdb.Exists(b.Context(), l.name).Val() == 0 {
					b.Fatalf("%s is gone", l.name)
				}
			}
		}
	})
}

// Whatever goes wrong with a call that several share, each gets what it would have got alone, and
// pays once.
func TestSharedCallGoesWrong(t *testing.T) {
	for name, fault := range map[string]func(ctx context.Context, cmd *redis.Cmd, send func() error) error{
		"refused": func(_ context.Context, cmd *redis.Cmd, _ func() error) error {
			cmd.SetErr(io.ErrUnexpectedEOF)
			return cmd.Err()
		},
		"lost reply": func(_ context.Context, cmd *redis.Cmd, send func() error) error {
			_ = send()
			cmd.SetErr(io.ErrUnexpectedEOF)
			return cmd.Err()
		},
		"refused for good": func(_ context.Context, cmd *redis.Cmd, _ func() error) error {
			cmd.SetErr(redisError("NOPERM this user has no permissions"))
			return cmd.Err()
		},
		"no answer": func(_ context.Context, cmd *redis.Cmd, send func() error) error {
			_ = send()
			time.Sleep(time.Second)
			cmd.SetErr(context.DeadlineExceeded)
			return cmd.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				c := b.client()
				ls := many(b, c, 40, "many:%d", kept(guarded("1000/1h"), time.Hour))
				check(b, script.Many.Load(b.Context(), b.rdb).Err()) // otherwise a fault hits only NOSCRIPT
				h := new(sharedCalls)
				faults := 2
				h.fault = func(ctx context.Context, cmd *redis.Cmd, send func() error) error {
					h.mu.Lock()
					faults--
					wrong := faults >= 0
					h.mu.Unlock()
					if !wrong {
						return send()
					}
					return fault(ctx, cmd, send)
				}
				b.rdb.AddHook(h)
				var wg sync.WaitGroup
				for _, l := range ls {
					wg.Go(func() {
						check(b, l.Acquire(context.Background(), 1))
						now := time.Now()
						z := b.rdb.ZRangeWithScores(context.Background(), l.keys()[2], -1, -1).Val()
						if at := time.UnixMicro(int64(z[0].Score * 1000)); now.Sub(at) > 25*time.Millisecond { // half of the guard
							b.Errorf("%s: a permit of %v ago", l.name, now.Sub(at))
						}
					})
				}
				wg.Wait()
				if faults >= 2 {
					b.Error("no call was shared")
				}
				for _, l := range ls {
					if n := b.available(l); n != 998 && (n != 997 || l.c.Stats().Stale == 0) { // what came too late is left unused
						b.Errorf("%s has %d permits left, want 998", l.name, n)
					}
				}
			})
		})
	}
}

// A call that does not come back delays only those who are in it.
func TestSharedCallThatHangs(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		c := b.client()
		ls := many(b, c, 200, "many:%d", kept(rate("1000/1h"), time.Hour))
		h := new(sharedCalls)
		h.fault = func(_ context.Context, cmd *redis.Cmd, send func() error) error {
			h.mu.Lock()
			hangs := h.n <= 2
			h.mu.Unlock()
			if hangs {
				time.Sleep(20 * time.Second)
			}
			return send()
		}
		b.rdb.AddHook(h)
		begin := time.Now()
		soon := make([]bool, len(ls))
		var wg sync.WaitGroup
		for i, l := range ls {
			wg.Go(func() {
				check(b, l.Acquire(context.Background(), 1))
				soon[i] = time.Since(begin) < time.Second
			})
		}
		wg.Wait()
		n := 0
		for _, ok := range soon {
			if ok {
				n++
			}
		}
		if h.n < 3 || n < len(ls)-2*64 {
			b.Errorf("%d of %d were served while two of %d shared calls hung", n, len(ls), h.n)
		}
	})
}

// If the state of one limiter is odd, only that limiter is affected.
func TestForeignStateHarmsOnlyItself(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		c := b.client()
		ls := many(b, c, 12, "odd:%d", kept(ample(), time.Hour))
		ctx := b.Context()
		check(b, b.rdb.Set(ctx, ls[1].keys()[2], "no log", 0).Err())
		check(b, b.rdb.Del(ctx, ls[3].name).Err())
		check(b, b.rdb.RPush(ctx, ls[3].name, "no hash").Err())
		check(b, b.rdb.Set(ctx, ls[5].keys()[1], "999999999999999", 0).Err())
		check(b, b.rdb.Set(ctx, ls[7].keys()[1], "x", 0).Err())
		check(b, b.rdb.HSet(ctx, ls[9].name, "interval", "x").Err())
		b.rdb.AddHook(new(sharedCalls))
		for i, err := range atOnce(ls) {
			switch i {
			case 1, 3:
				b.expectError(err, ErrWrongType, ls[i].name)
			case 9:
				b.expectError(err, ErrInvalidRate, ls[i].name)
			default:
				check(b, err)
				b.expectAvailable(ls[i], 998)
			}
		}
	})
}

// What a forgotten line knew of its limiter is only a guess: what changed since counts.
func TestForgottenLineKnowsNoBetter(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		c := b.client()
		l := many(b, c, 1, "forgotten:%d", rate("10/1h"))[0]
		forgotten := func() bool { return c.core.Forget() == 0 }
		testkit.Eventually(b, 3*time.Second, "the line is forgotten", forgotten)
		other, err := b.client().Limiter(l.Name())
		check(b, err)
		check(b, other.SetRate(b.Context(), rate("3/1h")))
		check(b, other.Acquire(b.Context(), 1))
		testkit.Eventually(b, 3*time.Second, "the line is forgotten again", forgotten)
		again, err := c.Limiter(l.Name())
		check(b, err)
		for range 2 {
			b.expectTry(again, 1, true)
		}
		b.expectTry(again, 1, false)
	})
}
