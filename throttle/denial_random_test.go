package throttle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The callers of one process, with random limits, weights and deadlines: a caller that is told at
// once could indeed not have been served by its deadline, given the log and the callers before it
// in the queue that have a chance. And every caller that could not be served is told at once, if
// all ask one limit for the same; elsewhere nearly every caller.
func TestHopelessAgainstAnOracle(t *testing.T) {
	t.Parallel()
	runs := quarter(60)
	if nightly() {
		runs = 2000
	}
	told, hopeless := map[string]int{}, map[string]int{}
	for seed := range runs {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				x := newLottery(b, uint64(seed))
				x.run()
				told[x.kind] += x.told
				hopeless[x.kind] += x.hopeless
			})
		})
	}
	t.Logf("told at once: %v of the hopeless: %v", told, hopeless)
	for kind, least := range map[string]float64{"of two limits": 0.97, "of different weights": 0.8} {
		if share := float64(told[kind]) / float64(hopeless[kind]); share < least {
			t.Errorf("%.2f of the hopeless %s were told at once, want %.2f", share, kind, least)
		}
	}
}

// lottery is a random limit and the callers that ask for its permits.
type lottery struct {
	*bench
	random         *rand.Rand
	rates          []Rate
	ls             []*Limiter
	weights        int64
	kind           string
	told, hopeless int
}

func newLottery(b *bench, seed uint64) *lottery {
	x := &lottery{bench: b, random: rand.New(rand.NewPCG(seed, 8))}
	for range 1 + x.random.IntN(2) {
		r := Rate{Permits: 1 + x.random.Int64N(20), Interval: ms(200 + x.random.IntN(1800)), Guard: -1}
		if x.random.IntN(2) == 0 {
			r.Guard = 0
		}
		switch x.random.IntN(6) {
		case 0:
			r.Smooth = true
		case 1, 2:
			r.Window, r.Offset = Calendar, r.Interval/time.Duration(1+x.random.IntN(4))/2
		}
		x.rates = append(x.rates, r)
	}
	x.weights = 1
	if x.random.IntN(2) == 0 {
		x.weights = 1 + x.random.Int64N(4)
	}
	switch {
	case x.weights > 1:
		x.kind = "of different weights"
	case len(x.rates) > 1:
		x.kind = "of two limits"
	default:
		x.kind = "alike"
	}
	c := b.client()
	for i, r := range x.rates {
		l := must(c.Limiter(fmt.Sprint(b.name(), ":", i)))
		check(b, l.SetRate(b.Context(), r))
		x.ls = append(x.ls, l)
	}
	return x
}

func (x *lottery) most() int64 {
	return slices.MinFunc(x.rates, func(a, b Rate) int { return cmp.Compare(a.Permits, b.Permits) }).Permits
}

func (x *lottery) run() {
	g := must(x.ls[0].c.Group(x.ls...))
	// Earlier use, by others and at any time, leaves the log uneven.
	for range x.random.IntN(20) {
		other := must(x.client().Limiter(x.ls[x.random.IntN(len(x.ls))].Name()))
		must(other.TryAcquire(x.Context(), 1))
		time.Sleep(time.Duration(x.random.Int64N(int64(ms(100)))))
	}
	if x.random.IntN(4) == 0 {
		check(x, g.Pause(x.Context(), time.Duration(x.random.Int64N(int64(2*time.Second)))))
	}
	models := x.models()
	now := must(x.rdb.Time(x.Context()).Result()).UnixMicro()
	begin := time.Since(x.begin)

	all := make([]*caller, 20+x.random.IntN(100))
	most := time.Duration(1+x.random.Int64N(8)) * time.Second
	for i := range all {
		all[i] = &caller{n: min(1+x.random.Int64N(x.weights), x.most()), deadline: time.Duration(x.random.Int64N(int64(most)))}
		if x.random.IntN(3) == 0 {
			all[i].deadline = most
		}
	}
	ask := func(ctx context.Context, _ *Limiter, c *caller) error {
		ctx, cancel := context.WithTimeout(ctx, c.deadline)
		defer cancel()
		return g.Acquire(ctx, c.n)
	}
	x.crowd(x.ls[0], ask, all)()

	from := now
	for i, c := range all {
		ns := slices.Repeat([]int64{c.n}, len(models))
		turn := time.Duration(earliest(models, ns, from, 0)-now) * time.Microsecond
		by := c.begin - begin + c.deadline
		switch {
		case c.served() && c.at-c.begin > c.deadline+time.Millisecond:
			x.Errorf("caller %d was served after its deadline of %v, at %v", i, c.deadline, c.at)
		case !c.served() && !errors.Is(c.err, ErrExceedsDeadline) && !errors.Is(c.err, context.DeadlineExceeded):
			x.Errorf("caller %d: %v", i, c.err)
		}
		if turn > by {
			x.hopeless++
		}
		if c.hopeless() {
			x.told++
			if turn <= by-time.Millisecond { // deadlines are asked for in whole milliseconds
				x.Errorf("caller %d, for %d within %v, was told that it has no chance; its turn was in %v (%+v)", i, c.n, c.deadline, turn, x.rates)
			}
			continue
		}
		if turn > by+time.Millisecond && x.kind == "alike" {
			x.Errorf("caller %d, within %v, was told after %v; its turn was in %v (%+v)", i, c.deadline, c.at-c.begin, turn, x.rates)
		}
		charge(models, now+turn.Microseconds(), ns)
		// Callers behind it have no reservations before it has its own, a horizon before its
		// permits are due.
		from = max(from, now+(turn-x.horizon(c.n)).Microseconds())
	}
}

// horizon is how far ahead n permits are reserved.
func (x *lottery) horizon(n int64) time.Duration {
	h := maxInterval
	for _, r := range x.rates {
		h = min(h, max(r.Interval, time.Second)+2*time.Duration(n)*(r.Interval+r.guard())/time.Duration(r.Permits))
	}
	return h
}

// models are the limits with the log that they have now.
func (x *lottery) models() (ms []*model) {
	for i, l := range x.ls {
		r := x.rates[i]
		u := must(l.Inspect(x.Context()))
		m := &model{rate: r.Permits, interval: r.Interval.Microseconds(), guard: r.guard().Microseconds(), offset: r.Offset.Microseconds(),
			calendar: r.Window == Calendar, smooth: r.Smooth}
		if u.Paused > 0 {
			m.pause = must(x.rdb.Time(x.Context()).Result()).Add(u.Paused).UnixMicro()
		}
		for _, e := range must(x.rdb.ZRangeWithScores(x.Context(), l.keys()[2], 0, math.MaxInt32).Result()) {
			m.add(int64(math.Round(e.Score*1000)), parseMember(e.Member.(string)))
		}
		ms = append(ms, m)
	}
	return ms
}
