package throttle

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"
)

// action is one thing done to a limiter, and what it returned.
type action func(b *bench, l *Limiter) any

// step is an action at a time after the beginning, and its expected result. Steps of one time
// follow each other at once; the next time counts from the end of the last of them.
type step struct {
	at   time.Duration
	do   action
	want any
}

func try(n int64) action { return tryFor(n, 0) }

func tryFor(n int64, d time.Duration) action {
	return func(b *bench, l *Limiter) any { return outcomeOf(l.TryAcquireFor(b.Context(), n, d)) }
}

// outcomeOf is the error's kind, if there is one, otherwise the value.
func outcomeOf(v any, err error) any {
	for _, kind := range []error{ErrInvalidPermits, ErrExceedsRate, ErrNotInitialized, ErrInvalidRate, ErrExceedsDeadline} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	if err != nil {
		return err
	}
	return v
}

func acquire(n int64) action {
	return func(b *bench, l *Limiter) any { return outcomeOf(true, l.Acquire(b.Context(), n)) }
}

func available(b *bench, l *Limiter) any { return outcomeOf(l.AvailablePermits(b.Context())) }

func release(n int64) action {
	return func(b *bench, l *Limiter) any { return outcomeOf(true, l.Release(b.Context(), n)) }
}

func trySet(r Rate) action {
	return func(b *bench, l *Limiter) any { return outcomeOf(l.TrySetRate(b.Context(), r)) }
}

func set(r Rate) action {
	return func(b *bench, l *Limiter) any { return outcomeOf(true, l.SetRate(b.Context(), r)) }
}

func update(r Rate) action {
	return func(b *bench, l *Limiter) any { return outcomeOf(l.UpdateRate(b.Context(), r)) }
}

func expire(d time.Duration) action {
	return func(b *bench, l *Limiter) any { return outcomeOf(l.Expire(b.Context(), d)) }
}

func remove(b *bench, l *Limiter) any { return outcomeOf(l.Delete(b.Context())) }

func config(b *bench, l *Limiter) any {
	r, err := l.Config(b.Context())
	return outcomeOf(fmt.Sprint(r, " ", r.Type), err)
}

func keys(b *bench, l *Limiter) any { return len(b.keys()) }

// outlive reports whether every key has more than d left.
func outlive(d time.Duration) action {
	return func(b *bench, l *Limiter) any {
		for _, key := range b.keys() {
			ttl, err := b.rdb.PTTL(b.Context(), key).Result()
			if err != nil || ttl <= d {
				return fmt.Sprintf("%s expires in %v: %v", key, ttl, err)
			}
		}
		return true
	}
}

// soon reports whether at most d has passed since the beginning; under fake time, whether none
// has: there was no wait.
func soon(d time.Duration) action {
	return func(b *bench, l *Limiter) any {
		passed := time.Since(b.begin)
		return passed == 0 || b.fake == nil && passed <= d
	}
}

// took reports whether at least d has passed since the beginning.
func took(d time.Duration) action {
	return func(b *bench, l *Limiter) any { return time.Since(b.begin) >= d }
}

// by another Client.
func another(do action) action {
	return func(b *bench, l *Limiter) any { return do(b, b.limiter(b.client())) }
}

func times(n int, s step) []step { return slices.Repeat([]step{s}, n) }

func kept(r Rate, d time.Duration) Rate {
	r.KeepAlive = d
	return r
}

// ms is that many milliseconds.
func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// The scenarios that Redisson's limiter passes, by their numbers in its suite's summary. All are
// without guard, which it does not have.
var scenarios = map[string][]step{
	"1 keep-alive":            {{0, set(kept(rate("1/1s"), time.Second)), true}, {0, try(1), true}, {ms(1100), keys, 0}},
	"1 keep-alive renewed":    {{0, set(kept(rate("10/2s"), 2*time.Second)), true}, {0, try(1), true}, {ms(1000), try(1), true}, {ms(1000), outlive(ms(1500)), true}},
	"1 keep-alive over":       {{0, set(kept(rate("10/2s"), 2*time.Second)), true}, {0, try(1), true}, {ms(1000), try(1), true}, {ms(2500), try(1), true}, {ms(4600), keys, 0}},
	"2 expire before use":     {{0, set(rate("5/5s")), true}, {0, expire(10 * time.Second), true}, {0, try(1), true}, {ms(9000), try(1), true}, {ms(12000), keys, 0}},
	"3 expire after use":      {{0, set(rate("2/5s")), true}, {0, try(1), true}, {0, expire(time.Second), true}, {ms(1100), keys, 0}},
	"5 sliding":               {{0, set(rate("2/5s")), true}, {0, try(1), true}, {ms(4000), try(1), true}, {ms(5050), try(1), true}, {ms(5050), try(1), false}},
	"6 config":                {{0, set(rate("1/5s")), true}, {0, config, "1/5s overall"}, {0, set(rate("2/5s")), true}, {0, config, "2/5s overall"}},
	"7 available":             {{0, set(rate("10/5s")), true}, {0, available, int64(10)}, {0, acquire(1), true}, {0, available, int64(9)}, {ms(6000), available, int64(10)}},
	"8 more than the rate":    {{0, set(perClient("1/1s")), true}, {0, try(20), ErrExceedsRate}, {0, try(1), true}},
	"9 zero timeout":          slices.Concat([]step{{0, set(rate("5/1s")), true}}, fiveOfTen(0), fiveOfTen(ms(1020))),
	"10 timeout":              {{0, set(rate("1/5s")), true}, {0, tryFor(1, time.Second), true}, {0, tryFor(1, time.Second), false}, {0, tryFor(1, time.Second), false}, {0, soon(2 * time.Second), true}, {0, keys, 3}},
	"11 in a row":             slices.Concat([]step{{0, set(rate("1/5s")), true}}, times(10, step{0, acquire(1), true}), []step{{0, took(45 * time.Second), true}, {0, try(1), false}}),
	"12 set if absent":        slices.Concat([]step{{0, trySet(rate("10/1s")), true}, {0, trySet(rate("20/1s")), false}}, tenOfTwenty(0), tenOfTwenty(ms(1050)), tenOfTwenty(ms(2100))),
	"13 delete":               {{0, remove, false}, {0, set(rate("5/5m")), true}, {0, keys, 1}, {0, acquire(1), true}, {0, remove, true}, {0, keys, 0}},
	"16 set again":            {{0, set(rate("10/1s")), true}, {0, acquire(1), true}, {0, available, int64(9)}, {0, set(rate("20/1s")), true}, {0, acquire(1), true}, {0, available, int64(19)}},
	"16 set again, client":    {{0, set(perClient("10/1s")), true}, {0, acquire(1), true}, {0, available, int64(9)}, {0, set(perClient("20/1s")), true}, {0, acquire(1), true}, {0, available, int64(19)}},
	"17 usage kept":           {{0, set(rate("10/1s")), true}, {0, acquire(3), true}, {0, available, int64(7)}, {ms(1100), acquire(3), true}, {ms(1100), available, int64(7)}, {ms(1100), update(rate("20/5s")), true}, {ms(1100), available, int64(17)}, {ms(1100), set(rate("20/5s")), true}, {ms(1100), available, int64(20)}},
	"18 absent":               {{0, update(rate("10/1s")), false}, {0, update(perClient("10/1s")), false}, {0, keys, 0}},
	"19 the same rate":        {{0, set(rate("10/1s")), true}, {0, update(rate("10/1s")), true}, {0, available, int64(10)}, {0, acquire(2), true}, {0, update(rate("10/1s")), true}, {0, available, int64(8)}, {0, try(10), false}, {0, try(8), true}},
	"20 raised":               {{0, set(rate("10/2s")), true}, {0, acquire(4), true}, {0, update(rate("20/5s")), true}, {0, available, int64(16)}, {0, try(16), true}},
	"21 lowered":              {{0, set(rate("10/2s")), true}, {0, acquire(3), true}, {0, update(rate("5/5s")), true}, {0, available, int64(2)}, {0, try(3), false}, {0, try(2), true}},
	"21 lowered below use":    {{0, set(rate("10/2s")), true}, {0, acquire(8), true}, {0, update(rate("5/5s")), true}, {0, available, int64(0)}, {0, try(1), false}, {0, try(2), false}},
	"22 after the interval":   {{0, set(rate("10/1s")), true}, {0, acquire(8), true}, {ms(2000), update(rate("10/2s")), true}, {ms(2000), available, int64(10)}},
	"22 shorter interval":     {{0, set(rate("10/5s")), true}, {0, acquire(8), true}, {ms(1100), update(rate("10/1s")), true}, {ms(1100), available, int64(10)}},
	"23 another type":         {{0, set(rate("10/1s")), true}, {0, acquire(3), true}, {0, update(perClient("10/1s")), true}, {0, available, int64(10)}},
	"24 keep-alive too short": {{0, set(kept(rate("10/5s"), time.Second)), ErrInvalidRate}},
	"25 each client":          {{0, set(perClient("10/5s")), true}, {0, acquire(3), true}, {0, update(perClient("20/5s")), true}, {0, available, int64(17)}, {0, another(available), int64(20)}},
	"26 release":              giveAndTake(rate("10/1s")),
	"26 release, client":      giveAndTake(perClient("10/1s")),
}

func fiveOfTen(at time.Duration) []step {
	return slices.Concat([]step{{at, available, int64(5)}, {at, try(1), true}, {at, try(1), true}, {at, available, int64(3)}, {at, try(1), true}, {at, try(1), true},
		{at, available, int64(1)}, {at, try(1), true}, {at, available, int64(0)}}, times(5, step{at, try(1), false}))
}

func tenOfTwenty(at time.Duration) []step {
	return slices.Concat(times(10, step{at, try(1), true}), times(10, step{at, try(1), false}))
}

func giveAndTake(r Rate) []step {
	return []step{{0, set(r), true}, {0, acquire(3), true}, {0, available, int64(7)}, {0, release(3), true}, {0, available, int64(10)},
		{0, release(10), true}, {0, available, int64(10)}, {0, release(0), true}, {0, available, int64(10)}, {0, release(-1), ErrInvalidPermits}}
}

// nightly reports whether tests are to run at full size on a real Redis.
func nightly() bool { return os.Getenv("JOBTHROTTLE_NIGHTLY") == "1" }

// quarter is what tests in fake time do of n under the race detector: .ci/run has them do the whole
// without it.
func quarter(n int) int {
	if withRace && !nightly() {
		return (n + 3) / 4
	}
	return n
}

// noRaces skips, under the race detector, a test in fake time that has one goroutine: nothing can race in
// it. .ci/run has it without the detector, which makes it five times as long.
func noRaces(t *testing.T) {
	t.Helper()
	if withRace && !nightly() {
		t.Skip("one goroutine in fake time: run it without -race")
	}
}

// realTime is how long a scenario may take on a real Redis, whose time cannot be made to pass.
func realTime() time.Duration {
	if nightly() {
		return time.Minute
	}
	return 2500 * time.Millisecond
}

func TestScenarios(t *testing.T) {
	for name, steps := range scenarios {
		run := func(b *bench) {
			l := b.limiter(b.client())
			at := time.Duration(0)
			for i, s := range steps {
				if s.at > at {
					b.begin = time.Now().Add(-at) // so much after the last grant, however long the steps before took
					b.until(s.at)
					at = s.at
				}
				if got := s.do(b, l); !reflect.DeepEqual(got, s.want) {
					b.Fatalf("step %d, at %v: got %v, want %v", i, s.at, got, s.want)
				}
			}
		}
		var length time.Duration
		t.Run(name+"/fake time", func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				began := time.Now()
				run(b)
				length = time.Since(began)
			})
		})
		if length <= realTime() {
			t.Run(name+"/redis", func(t *testing.T) {
				t.Parallel()
				onRealRedis(t, run)
			})
		}
	}
}
