package throttle

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Scenarios 4, 14, 15 and 27: many goroutines, or one for long. What is asserted is in the log,
// which is exact whenever a goroutine gets to run.

// second is what a scenario calls a second: a fortieth of a second if time cannot be made to
// pass, unless the test runs at full size.
func (b *bench) second() time.Duration {
	if b.fake != nil || nightly() {
		return time.Second
	}
	return time.Second / 40
}

// perSecond is a rate of n for each of the bench's seconds, without guard.
func (b *bench) perSecond(n int64) Rate {
	return Rate{Permits: n, Interval: b.second(), Guard: -1}
}

// uses are the times at which permits were granted, ascending, to the microsecond of Redis's
// clock.
type uses []time.Time

// busiest is the most uses within any window of d.
func (u uses) busiest(d time.Duration) int {
	most, first := 0, 0
	for i, t := range u {
		for !u[first].Add(d).After(t) {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// closest is the least time from a use to the n-th after it.
func (u uses) closest(n int) time.Duration {
	least := time.Duration(1<<63 - 1)
	for i := n; i < len(u); i++ {
		least = min(least, u[i].Sub(u[i-n]))
	}
	return least
}

// after are the uses after t.
func (u uses) after(t time.Time) uses {
	i, _ := slices.BinarySearchFunc(u, t.Add(1), time.Time.Compare)
	return u[i:]
}

// ledger is the way to a Redis that notes every grant of one limiter. It reads the log before and
// after each call, one call at a time, and so misses neither what a call drops nor that a
// reservation was given back before it was due.
type ledger struct {
	redis.Scripter
	b    *bench
	log  string        // its key
	span time.Duration // for which its entries count

	mu     sync.Mutex
	grants map[int64]int // permits, by the us of their time
	read   int64         // when, by Redis's clock
}

// recorded is a limiter with a rate, and the ledger of its grants.
func (b *bench) recorded(r Rate) (*Limiter, *ledger) {
	b.Helper()
	book := &ledger{Scripter: b.rdb, b: b, grants: make(map[int64]int)}
	l := b.limiter(b.clientOf(book))
	book.log, book.span = l.keys()[2], r.Interval+r.guard()
	check(b, l.SetRate(b.Context(), r))
	return l, book
}

func (l *ledger) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note()
	defer l.note()
	return l.Scripter.EvalSha(ctx, sha, keys, args...)
}

func (l *ledger) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note()
	defer l.note()
	return l.Scripter.Eval(ctx, script, keys, args...)
}

// note reads the log: only the log knows what is left of the reservations that were in it when it
// was last read.
func (l *ledger) note() {
	ctx := context.Background() // the Client calls once more while the test's cleanup runs
	p := l.b.rdb.Pipeline()
	now, entries := p.Time(ctx), p.ZRangeWithScores(ctx, l.log, 0, -1)
	if _, err := p.Exec(ctx); err != nil {
		l.b.Errorf("the ledger reads the log: %v", err)
	}
	gone := now.Val().Add(-l.span).UnixMicro() // a call so long after the last reading may have dropped what is older
	maps.DeleteFunc(l.grants, func(at int64, _ int) bool { return at > l.read && at > gone })
	listed := make(map[int64]int)
	for _, e := range entries.Val() {
		listed[int64(e.Score*1000+0.5)] += int(parseMember(e.Member.(string)))
	}
	maps.Copy(l.grants, listed)
	l.read = now.Val().UnixMicro()
}

// uses are the grants that are due by now.
func (l *ledger) uses() uses {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note()
	var u uses
	for at, n := range l.grants {
		if at <= l.read {
			u = append(u, slices.Repeat(uses{time.UnixMicro(at)}, n)...)
		}
	}
	slices.SortFunc(u, time.Time.Compare)
	return u
}

func TestScenario4StaysUsed(t *testing.T) {
	staysUsed := func(b *bench) {
		l := b.limited(rate("10000/10s"))
		ctx, cancel := context.WithCancel(b.Context())
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				for l.Acquire(ctx, 1) == nil {
				}
			})
		}
		full := 0
		for i := range 20 {
			b.until(time.Duration(i+1) * time.Second)
			if u, err := l.Inspect(b.Context()); err != nil {
				b.Error(err)
			} else if u.Used == 10000 {
				full++
			}
		}
		cancel()
		wg.Wait()
		if full < 16 {
			b.Errorf("the log held all 10000 permits in %d of 20 samples", full)
		}
	}
	t.Run("fake time", func(t *testing.T) { underFakeTime(t, staysUsed) })
	t.Run("redis", func(t *testing.T) {
		if !nightly() {
			t.Skip("takes 20s: set JOBTHROTTLE_NIGHTLY=1")
		}
		onRealRedis(t, staysUsed)
	})
}

func TestScenario14NeverAboveTheRate(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l, book := b.recorded(b.perSecond(18))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 125 {
					if err := l.Acquire(b.Context(), 1); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		u := book.uses()
		if most := u.busiest(b.second()); most != 18 || len(u) != 1000 {
			b.Errorf("%d uses, up to %d in %v; the limit is 18", len(u), most, b.second())
		}
		if took := time.Since(b.begin); b.fake != nil && took != 55*time.Second {
			b.Errorf("1000 permits at 18 a second took %v, want 55s", took)
		}
	})
}

func TestScenario15TryAndSleep(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		const want = 500
		r := b.perSecond(10)
		if b.fake != nil {
			r.Interval = time.Second / 40 // 80,000 calls would take long
		}
		l, book := b.recorded(r)
		var wg sync.WaitGroup
		var had atomic.Int64
		for g := range 8 {
			wg.Go(func() {
				for i := 0; had.Load() < want && time.Since(b.begin) < time.Minute; i++ {
					ok, err := l.TryAcquire(b.Context(), 1)
					if err != nil {
						b.Error(err)
						return
					}
					if ok {
						had.Add(1)
					}
					<-time.After(ms((g*3+i*7)%9 + 1))
				}
			})
		}
		wg.Wait()
		u := book.uses()
		if int64(len(u)) != had.Load() || len(u) < want {
			b.Errorf("%d grants, %d in the log, want %d within a minute", had.Load(), len(u), want)
		}
		if closest := u.closest(10); closest < r.Interval {
			b.Errorf("a use %v after the tenth before it; the limit is 10 in %v", closest, r.Interval)
		}
	})
}

func TestScenario27AcquireAndRelease(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limited(b.perSecond(10))
		for i := range 100 {
			b.until(time.Duration(i) * b.second() / 10)
			b.expectTry(l, 1, true)
			check(b, l.Release(b.Context(), 1))
			b.expectAvailable(l, 10)
		}
	})
}
