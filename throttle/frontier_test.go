package throttle

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// What is known of a log holds as long as nobody else has written. A Redisson client that frees
// what expired can bring the value back to what it was, after another grant has lowered it: but
// then the log is another.
func TestFrontierEndsWhereOthersFree(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(Rate{Permits: 10, Interval: time.Second, Guard: 10 * time.Millisecond})
		other := b.limiter(b.client())
		at := func(when int, what func(*Limiter, int64, bool), on *Limiter, n int64, want bool) {
			b.until(ms(when))
			what(on, n, want)
		}
		at(0, b.expectTry, l, 1, true)
		at(300, b.expectTry, other, 1, true)
		at(500, b.expectTry, l, 7, true)
		at(900, b.expectTry, l, 3, false) // now it is known when 3 fit
		at(950, b.expectTry, other, 1, true)

		b.until(ms(1005)) // what a Redisson client does with what expired
		oldest := b.rdb.ZRange(b.Context(), l.keys()[2], 0, 0).Val()[0]
		check(b, b.rdb.ZRem(b.Context(), l.keys()[2], oldest).Err())
		check(b, b.rdb.IncrBy(b.Context(), l.keys()[1], 1).Err())

		b.until(ms(1020))
		r, err := l.Reserve(b.Context(), 3, time.Minute)
		check(b, err)
		if at := time.Since(b.begin) + r.Delay(); at < ms(1510) {
			b.Errorf("3 permits at %v: 7 of 500ms and 1 of 950ms count until 1.51s", at)
		}
		r.Cancel()
	})
}

// The same for a client whose clock is ahead: its entry lies where nobody has a reservation.
func TestFrontierEndsWhereOthersGrant(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(Rate{Permits: 10, Interval: time.Second, Guard: 10 * time.Millisecond})
		b.expectTry(l, 2, true)
		b.until(ms(500))
		b.expectTry(l, 8, true)
		b.until(ms(900))
		b.expectTry(l, 2, false) // not before 1.01 s
		b.until(ms(1005))
		oldest := b.rdb.ZRange(b.Context(), l.keys()[2], 0, 0).Val()[0]
		check(b, b.rdb.ZRem(b.Context(), l.keys()[2], oldest).Err())
		ahead := redis.Z{Score: score(b, ms(1100)), Member: "\x10an id of 16 byte\x02\x00\x00\x00"}
		check(b, b.rdb.ZAdd(b.Context(), l.keys()[2], ahead).Err())

		r, err := l.Reserve(b.Context(), 2, time.Minute)
		check(b, err)
		if at := time.Since(b.begin) + r.Delay(); at < ms(1510) {
			b.Errorf("2 permits at %v: 8 of 500ms count until 1.51s, 2 from 1.1s on", at)
		}
		r.Cancel()
	})
}

// An id of eight bytes need not be ours: then what it says is no time, and the entry expires by
// its score.
func TestOthersShortIDsExpire(t *testing.T) {
	for name, id := range map[string]string{"far ahead": "\x00\xff34567\xff", "long ago": "\x00\x00\x00\x01abcd"} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				l := b.limited(Rate{Permits: 10, Interval: time.Second, Guard: 10 * time.Millisecond})
				b.expectTry(l, 1, true)
				b.until(ms(500))
				other := redis.Z{Score: score(b, ms(500)), Member: "\x08" + id + "\x05\x00\x00\x00"}
				check(b, b.rdb.ZAdd(b.Context(), l.keys()[2], other).Err())
				check(b, b.rdb.DecrBy(b.Context(), l.keys()[1], 5).Err())
				b.until(ms(1050))
				b.expectTry(l, 6, false)
				b.expectTry(l, 5, true)
				b.until(ms(1550))
				b.expectTry(l, 5, true)
			})
		})
	}
}

// score is the score of an entry at a time of the test.
func score(b *bench, at time.Duration) float64 {
	b.Helper()
	return float64(b.begin.Add(at).UnixMicro()) / 1000
}

// Nor does it hold after the log was merged: that leaves the value as it was, and the oldest
// entry, if that is alone in its bucket.
func TestFrontierEndsWhereTheLogIsMerged(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		const entries, apart = 540, 3600 * time.Microsecond
		l := b.limited(Rate{Permits: entries, Interval: 2 * time.Second, Guard: 20 * time.Millisecond})
		b.expectTry(l, 1, true) // at 0
		after := func(i int) time.Duration { return 10*time.Millisecond + time.Duration(i)*apart }
		var zs []redis.Z
		for i := range entries - 1 {
			zs = append(zs, redis.Z{Score: score(b, after(i)), Member: ownMember(b.begin.Add(after(i)).UnixMicro(), 1)})
		}
		check(b, b.rdb.ZAdd(b.Context(), l.keys()[2], zs...).Err())
		check(b, b.rdb.DecrBy(b.Context(), l.keys()[1], entries-1).Err())
		q := newScriptQueue(l)
		call := func(when int, longest int64, ns ...int64) script.Reply {
			b.until(ms(when))
			c := batchCall{refresh: []bool{false}, ahead: []int64{0}, releases: []int64{0}}
			for _, n := range ns {
				c.asks = append(c.asks, ask{longest: longest, reach: longest, near: longest, count: 1, ns: []int64{n}})
			}
			r := q.send(b, b.rdb, c)
			q.learn(r)
			return r
		}
		call(1800, 0, 2)    // the queue is told the configuration
		call(1820, 0, 2)    // 504 have passed, and it is known when 2 fit
		call(1900, 0, 4, 2) // 526 have: they are merged, and the whole log is read
		if n := b.rdb.ZCard(b.Context(), l.keys()[2]).Val(); n >= 500 {
			b.Fatalf("%d entries: nothing was merged", n)
		}
		r := call(1910, 1_000_000, 30)
		at, want := ms(1910)+time.Duration(r.Runs[0].Grants[0].Offset)*time.Microsecond, after(28)+2020*time.Millisecond
		if at < want || at > want+ms(17) {
			b.Errorf("30 permits at %v: that many are free at %v, and buckets are of 7.9ms", at, want)
		}
	})
}
