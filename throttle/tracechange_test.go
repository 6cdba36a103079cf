package throttle

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// set changes a rate in one of several ways.
func (x *trace) set(t *rapid.T) {
	l, r := x.limiter(t), x.rate(t)
	mode := rapid.SampledFrom([]string{"set", "update", "update", "update", "apply", "try"}).Draw(t, "mode")
	x.change(t, l, func(ctx context.Context, before state) bool {
		done, err := l.setRate(ctx, mode, r)
		check(t, err)
		want := mode == "set" || mode == "apply" || (mode == "update") == before.exists
		if done != want {
			t.Fatalf("%s of a limiter that exists: %v, returned %v", mode, before.exists, done)
		}
		return done && (mode == "set" || !before.exists || before.perClient != (r.Type == PerClient))
	})
}

func (x *trace) pause(t *rapid.T) {
	l := x.limiter(t)
	d := time.Duration(rapid.IntRange(0, 300_000).Draw(t, "pause")) * time.Microsecond
	if !x.s.fake {
		d /= 100
	}
	x.change(t, l, func(ctx context.Context, before state) bool {
		err := l.Resume(ctx)
		if d > 0 {
			err = l.Pause(ctx, d)
		}
		if before.exists {
			check(t, err)
		}
		return false
	})
}

func (x *trace) delete(t *rapid.T) {
	l := x.limiter(t)
	x.change(t, l, func(ctx context.Context, before state) bool {
		_, err := l.Delete(ctx)
		check(t, err)
		if rapid.Bool().Draw(t, "set again") {
			x.s.pass(time.Microsecond)
			check(t, l.SetRate(ctx, x.rate(t)))
		}
		return true
	})
}

// change makes a change of a limiter, and notes what it means for the permits that were granted
// before: they are forgotten if f says so, otherwise only the reservations that are not near.
func (x *trace) change(t *rapid.T, l *Limiter, f func(ctx context.Context, before state) bool) {
	x.s.pass(10 * time.Microsecond) // no two changes fall into one microsecond
	before := readState(t, x.s.rdb, l)
	forgotten := f(context.Background(), before)
	after := readState(t, x.s.rdb, l)
	now := x.s.now(t)
	if after.exists && after.epoch < before.epoch {
		t.Fatalf("epoch %d after %d", after.epoch, before.epoch)
	}
	for key := range x.truth {
		if key != l.keys()[2] && !strings.HasPrefix(key, l.keys()[2]+":") {
			continue
		}
		x.truth[key] = slices.DeleteFunc(x.truth[key], func(e entry) bool {
			switch {
			case forgotten:
				return true
			case after.epoch != before.epoch:
				return e.at > after.epoch+near || e.at <= before.model.cutoff(now)
			}
			return false
		})
	}
	if after.epoch != before.epoch && !after.perClient {
		for _, r := range after.records {
			if r.at > after.epoch+near {
				t.Fatalf("a reservation %v ahead survived the change", time.Duration(r.at-after.epoch)*time.Microsecond)
			}
		}
	}
}

// loseValue loses the cached value, as an eviction would.
func (x *trace) loseValue(t *rapid.T) {
	s := readState(t, x.s.rdb, x.limiter(t))
	check(t, x.s.rdb.Del(context.Background(), s.valueKey).Err())
}

// foreign takes permits as a Redisson client does that relies on the value.
func (x *trace) foreign(t *rapid.T) {
	ctx := context.Background()
	l := x.limiter(t)
	s := readState(t, x.s.rdb, l)
	n := rapid.Int64Range(1, 3).Draw(t, "n")
	if value, err := x.s.rdb.Get(ctx, s.valueKey).Int64(); err != nil || value < n || s.perClient || s.nameTTL >= 0 || s.model.calendar || s.model.smooth {
		return
	}
	now := x.s.now(t)
	if now < s.model.pause {
		return
	}
	at := now / 1000 * 1000
	id := rapid.StringOfN(rapid.RuneFrom([]rune("abcdef")), 16, 16, -1).Draw(t, "id")
	member := "\x10" + id + string([]byte{byte(n), 0, 0, 0})
	added, err := x.s.rdb.ZAddNX(ctx, s.permits, redis.Z{Score: float64(at / 1000), Member: member}).Result()
	check(t, err)
	if added == 0 {
		return
	}
	check(t, x.s.rdb.DecrBy(ctx, s.valueKey, n).Err())
	m := s.model
	for _, e := range x.truth[s.permits] {
		m.add(e.at, e.n)
	}
	m.add(at, n)
	x.truth[s.permits] = m.log
}
