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

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// What users were promised, each as somebody found it broken. Only exported names are used.

// used counts what waiters goroutines acquire in a loop until ctx ends.
func used(ctx context.Context, waiters int, ls ...Acquirer) (starts []time.Time) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range waiters {
		wg.Go(func() {
			for ls[i%len(ls)].Acquire(ctx, 1) == nil {
				at := time.Now()
				mu.Lock()
				starts = append(starts, at)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.SortFunc(starts, time.Time.Compare)
	return starts
}

// busiest is the largest number of times in any window.
func busiest(times []time.Time, window time.Duration) (most int) {
	first := 0
	for i, t := range times {
		for t.Sub(times[first]) >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// A short limit in a group with a long one, whose log is full of entries, is
// used as if it were alone.
func TestGroupOfShortAndLong(t *testing.T) {
	for _, long := range []string{"10000/24h", "100000/720h", "3000/1h"} {
		t.Run(long, func(t *testing.T) {
			atFullSize(t, func(b *bench) {
				c := b.client()
				short, day := b.limiter(c), must(c.Limiter(b.name()+":long"))
				check(b, short.SetRate(b.Context(), guarded("10/1s")))
				check(b, day.SetRate(b.Context(), guarded(long)))
				begin := time.Now()
				for i := range 1000 {
					at := float64(begin.Add(-time.Duration(i)*3*time.Second).UnixMicro()) / 1000
					check(b, b.rdb.ZAdd(b.Context(), "{"+day.Name()+"}:permits", redis.Z{Score: at, Member: foreignEntry(i, 1)}).Err())
				}
				g := must(c.Group(short, day))
				ctx, cancel := context.WithTimeout(b.Context(), 8*time.Second)
				defer cancel()
				starts := used(ctx, 30, g)
				b.Logf("%d permits in 8s, %d in the busiest", len(starts), busiest(starts, time.Second))
				if len(starts) < 78 || busiest(starts, time.Second) > 10 {
					b.Errorf("%d permits in 8s, %d in one second; want at least 78, at most 10", len(starts), busiest(starts, time.Second))
				}
			})
		})
	}
}

// foreignEntry is a log entry as a Redisson client writes it.
func foreignEntry(i, permits int) string {
	return "\x10" + fmt.Sprintf("%016d", i) + string([]byte{byte(permits), 0, 0, 0})
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// atFullSize runs a test under fake time and, if there is time for it, on a real Redis.
func atFullSize(t *testing.T, f func(b *bench)) {
	t.Run("fake time", func(t *testing.T) { underFakeTime(t, f) })
	if nightly() {
		t.Run("redis", func(t *testing.T) { onRealRedis(t, f) })
	}
}

// What a pause has held up is used at once when the pause is over, all of it. An expiry, given or
// taken back, holds up nobody.
func TestAfterAPause(t *testing.T) {
	expire := func(b *bench, l *Limiter) {
		if ok, err := l.Expire(b.Context(), time.Hour); !ok || err != nil {
			b.Errorf("Expire: %v, %v", ok, err)
		}
	}
	for name, c := range map[string]struct {
		before, change func(b *bench, l *Limiter)
		lasts          time.Duration
	}{
		"Pause":  {nil, func(b *bench, l *Limiter) { check(b, l.Pause(b.Context(), 2*time.Second)) }, 2 * time.Second},
		"Expire": {nil, expire, 0},
		"ClearExpire": {expire, func(b *bench, l *Limiter) {
			if ok, err := l.ClearExpire(b.Context()); !ok || err != nil {
				b.Errorf("ClearExpire: %v, %v", ok, err)
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			atFullSize(t, func(b *bench) {
				r := guarded("40/4s")
				r.Smooth = true
				one := b.limited(r)
				two := b.limiter(b.client())
				if c.before != nil {
					c.before(b, one)
				}
				ctx, cancel := context.WithTimeout(b.Context(), 16*time.Second)
				defer cancel()
				over := make(chan time.Time, 1)
				time.AfterFunc(5*time.Second, func() {
					c.change(b, one)
					over <- time.Now().Add(c.lasts)
				})
				starts, after := used(ctx, 100, one, two), 0
				from := <-over
				for _, s := range starts {
					if d := s.Sub(from); d >= 0 && d < 8*time.Second {
						after++
					}
				}
				b.Logf("%d permits in the 8s after it", after)
				if after < 77 {
					b.Errorf("%d permits in the 8s after it, want at least 77 of 79", after)
				}
			})
		})
	}
}

// While Redis is away, a wait that ends with its deadline says so.
func TestDeadlineWhileRedisIsAway(t *testing.T) {
	b := &bench{T: t, rdb: dial(t, "127.0.0.1:1"), begin: time.Now()}
	l := b.limiter(b.client())
	ctx, cancel := context.WithTimeout(b.Context(), ms(300))
	defer cancel()
	if err := l.Acquire(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Acquire: %v", err)
	}
	if _, err := l.TryAcquireFor(b.Context(), 1, ms(300)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("TryAcquireFor: %v", err)
	}
	_ = l.c.Close()
}

// A Redis client that is closed ends all waits, and so does a Client.
func TestClosedClients(t *testing.T) {
	for name, shut := range map[string]func(*Client, *redis.Client) error{
		"redis":  func(_ *Client, rdb *redis.Client) error { return rdb.Close() },
		"client": func(c *Client, _ *redis.Client) error { return c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			addr := redistest.Start(t)
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			defer rdb.Close()
			c := must(New(rdb, Options{}))
			defer c.Close()
			l := must(c.LimiterWithRate("closed", rate("1/1m")))
			ctx := t.Context()
			check(t, l.Acquire(ctx, 1))
			ended := make(chan error, 20)
			for range 20 {
				go func() { ended <- l.Acquire(ctx, 1) }()
			}
			for c.Stats().Waiting < 20 {
				<-time.After(time.Millisecond)
			}
			for !c.core.Hears() { // that is how they hear of it
				<-time.After(time.Millisecond)
			}
			check(t, shut(c, rdb))
			closed := func(what string, err error) {
				if !errors.Is(err, ErrClosed) && !errors.Is(err, redis.ErrClosed) {
					t.Errorf("%s: %v, want that it is closed", what, err)
				}
			}
			begin := time.Now()
			for range 20 {
				closed("a waiter", <-ended)
			}
			if took := time.Since(begin); took > ms(300) {
				t.Errorf("the waiters were told after %v", took)
			}
			begin = time.Now()
			closed("Acquire", l.Acquire(ctx, 1))
			_, err := l.TryAcquire(ctx, 1)
			closed("TryAcquire", err)
			_, err = l.Reserve(ctx, 1, time.Hour)
			closed("Reserve", err)
			closed("Release", l.Release(ctx, 1))
			if took := time.Since(begin); took > ms(500) {
				t.Errorf("calls after the end took %v", took)
			}
		})
	}
}

// What somebody wrote into a limiter's hash is an error that names the limiter and the field, at once and for all who
// ask. Redis goes on, nothing is granted, and a new rate repairs it.
func TestForeignFields(t *testing.T) {
	odd := []string{"x", "-1", "1e300", "-1e300", "0.5", "nan", "inf", "99999999999999999999", ""}
	fields := map[string][]string{
		"rate":     append(odd, "0", "4294967296"),
		"interval": append(odd, "0", "31536000001"),
		"type":     {"2", "x", "1e300"}, "keepAliveTime": odd, "guard": append(odd, "1000001"), "smooth": {"2", "x"}, "window": {"2", "x"},
		"offset": append(odd, "1000000"), "epoch": odd, "pause": append(odd, "4000000000000000"),
	}
	forEachRedis(t, func(b *bench) {
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		try := func(what string, fields ...any) {
			b.Helper()
			c := b.client()
			l := must(c.Limiter(b.name() + ":" + what))
			check(b, l.SetRate(ctx, rate("10/1s")))
			b.expectTry(l, 1, true)
			check(b, b.rdb.HSet(ctx, l.Name(), fields...).Err())
			begin := time.Now()
			fresh := must(b.client().Limiter(l.Name()))
			g := must(c.Group(l, must(c.LimiterWithRate(b.name()+":other", rate("10/1s")))))
			for call, err := range map[string]error{
				"Acquire": l.Acquire(ctx, 1), "Acquire of another": fresh.Acquire(ctx, 1), "Pause": fresh.Pause(ctx, time.Second),
				"Resume": l.Resume(ctx), "Group": g.Acquire(ctx, 1), "Release": fresh.Release(ctx, 1),
				"Inspect": second(fresh.Inspect(ctx)), "Config": second(l.Config(ctx)), "AvailablePermits": second(l.AvailablePermits(ctx)),
				"TryAcquire": second(fresh.TryAcquire(ctx, 1)), "Reserve": second(l.Reserve(ctx, 1, time.Minute)),
				"TrySetRate": second(l.TrySetRate(ctx, rate("1/1s"))), "Expire": second(fresh.Expire(ctx, time.Hour)),
			} {
				var named *Error
				if !errors.Is(err, ErrInvalidRate) || !errors.As(err, &named) || named.Limiter != l.Name() || !namesOne(err, fields) {
					b.Errorf("%s %q: %s: %v, want ErrInvalidRate that names this limiter and the field", what, fields, call, err)
				}
			}
			if took := time.Since(begin); took > time.Second {
				b.Errorf("%s %q: the answers took %v", what, fields, took)
			}
			check(b, b.rdb.Ping(ctx).Err())
			if strings.HasSuffix(what, "delete") {
				must(l.Delete(ctx))
				check(b, l.SetRate(ctx, rate("10/1s")))
			} else if ok, err := l.UpdateRate(ctx, rate("10/1s")); !ok || err != nil {
				b.Errorf("%s %q: UpdateRate: %v, %v", what, fields, ok, err)
			}
			b.expectTry(l, 9, true) // a second has not passed
			b.expectTry(fresh, 2, false)
			check(b, c.Close())
			check(b, fresh.c.Close())
		}
		for name, values := range fields {
			for _, v := range values {
				try(name, name, v)
			}
		}
		for _, gone := range []string{"guard", "interval", "epoch", "smooth", "pause", "type", "seal"} {
			l := must(b.client().LimiterWithRate(b.name()+":without:"+gone, rate("10/1s")))
			check(b, l.Acquire(ctx, 1))
			check(b, b.rdb.HDel(ctx, l.Name(), gone).Err())
			if err := l.Acquire(ctx, 1); err != nil && !errors.Is(err, ErrInvalidRate) {
				b.Errorf("without %s: %v", gone, err)
			}
			check(b, l.SetRate(ctx, rate("10/1s")))
			check(b, l.Acquire(ctx, 1))
		}
		try("many", "window", 1, "guard", 900000, "offset", "1e300", "pause", "1e300")
		try("many to delete", "window", 1, "guard", 900000, "offset", "1e300", "pause", "1e300")
	})
}

// namesOne reports whether an error names one of the fields, each of which is followed by its value.
func namesOne(err error, fields []any) bool {
	for i := 0; i < len(fields); i += 2 {
		if strings.Contains(err.Error(), fmt.Sprintf("its %s in Redis makes no sense", fields[i])) {
			return true
		}
	}
	return false
}

func second[T any](_ T, err error) error { return err }

// A cached value, a last reply and a frontier that somebody wrote are computed again: they
// neither grant nor stop anything.
func TestForeignValues(t *testing.T) {
	for _, value := range []string{"999999999999999", "99", "11", "-5", "-999999999999999999", "1e300", "-1e300", "nan", "x", ""} {
		t.Run(value, func(t *testing.T) {
			forEachRedis(t, func(b *bench) {
				ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
				defer cancel()
				l := b.limited(rate("10/1h"))
				check(b, l.Acquire(ctx, 1))
				check(b, l.Acquire(ctx, 1))
				key := b.replyKey(l)
				if n := b.rdb.Exists(ctx, key).Val(); n != 1 {
					t.Fatalf("no reply in %q", key)
				}
				check(b, b.rdb.Set(ctx, "{"+l.Name()+"}:value", value, 0).Err())
				check(b, b.rdb.Set(ctx, key, strings.Repeat("9", 15)+" 0", 0).Err())
				check(b, b.rdb.HSet(ctx, l.Name(), "frontier", strings.Repeat("9 ", 400)).Err())
				granted := 2
				for range 20 {
					ok, err := l.TryAcquire(ctx, 1)
					check(b, err)
					if ok {
						granted++
					}
				}
				if granted > 10 || granted < 8 && !strings.HasPrefix(value, "-") {
					t.Errorf("%d permits of 10 granted", granted)
				}
				if calls := l.c.Stats().Calls; calls > 100 {
					t.Errorf("%d calls", calls)
				}
			})
		})
	}
}

// What is given back is given back once, however late its call is repeated.
func TestReleaseIsRepeatedLate(t *testing.T) {
	kept := rate("100/1h")
	kept.KeepAlive = time.Hour
	for _, r := range []Rate{rate("100/1h"), kept} {
		for _, away := range []time.Duration{ms(100), 5 * time.Second, 15 * time.Second, 65 * time.Second, 10 * time.Minute} {
			for _, fresh := range []bool{false, true} {
				t.Run(fmt.Sprint(r.KeepAlive, away, fresh), func(t *testing.T) {
					underFakeTime(t, func(b *bench) {
						other := b.limited(r)
						check(b, other.Acquire(b.Context(), 60))
						lost := &loses{Scripter: b.rdb}
						l := b.limiter(b.clientOf(lost))
						if !fresh {
							check(b, other.Release(b.Context(), 10))
							check(b, l.Acquire(b.Context(), 10))
						}
						lost.until = time.Now().Add(away)
						_ = l.Release(b.Context(), 10) // it may say that it does not know
						if free := must(other.AvailablePermits(b.Context())); free > 50 {
							t.Errorf("%d permits are free of 100, 50 are in use", free)
						}
						lost.until = time.Time{}
						check(b, l.Acquire(b.Context(), 1))
					})
				})
			}
		}
	}
}

// loses is a Redis whose replies are lost until some time.
type loses struct {
	redis.Scripter
	until time.Time
}

func (l *loses) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	cmd := l.Scripter.EvalSha(ctx, sha, keys, args...)
	if left := time.Until(l.until); left > 0 && len(args) > 0 { // reads of the epochs get through
		time.Sleep(min(left, 3*time.Second))
		return failed(io.ErrUnexpectedEOF)
	}
	return cmd
}

// The costs of a request are those with which it was made.
func TestCostsAreTheCallersOwn(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		c := b.client()
		one, two := b.limiter(c), must(c.Limiter(b.name()+":two"))
		check(b, one.SetRate(b.Context(), rate("10/1h")))
		check(b, two.SetRate(b.Context(), rate("10/1h")))
		g := must(c.Group(one, two))
		costs := []int64{3, 4}
		r := must(g.ReserveEach(b.Context(), time.Second, costs...))
		costs[0], costs[1] = 10, 10
		check(b, one.Acquire(b.Context(), 2))
		r.Cancel()
		b.expectAvailable(one, 8)
		b.expectAvailable(two, 10)
	})
}
