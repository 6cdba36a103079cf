package throttle

import (
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// TestWavePausesAtTheMinimum: an API refuses what was sent after a cut, and the limit cannot fall any more. The pause holds
// all the same, also for those who have their permits reserved.
func TestWavePausesAtTheMinimum(t *testing.T) {
	t.Parallel()
	a := newLearner(t, Rate{Permits: 20, Interval: time.Hour, Guard: -1}, script.Bracket{Start: 20, Min: 20, Max: 1000})
	epoch := func() string { return a.rdb.HGet(t.Context(), "api", "epoch").Val() }
	var before string
	for range 2 {
		a.permits(1, 10*time.Minute)
		before = epoch()
		r := a.next()
		r.Seen = []script.Seen{{Refused: 1}}
		a.send(r)
	}
	u, err := a.l.Inspect(t.Context())
	check(t, err)
	if u.Rate.Permits != 20 || u.Paused != 15*time.Minute {
		t.Errorf("after a wave the limit is %d and pauses for %v, want 20 and 15m", u.Rate.Permits, u.Paused)
	}
	if epoch() == before {
		t.Error("clients are not told of the pause")
	}
}

// TestRaiseReachesWaiters: a client hears from the API that its limit is higher. Those who wait, in any process, do not wait
// for permits of the lower limit.
func TestRaiseReachesWaiters(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		var ls []*Limiter
		for range 2 {
			l := must(b.client().LimiterWithRate("api", Rate{Permits: 5, Interval: time.Minute}))
			check(b, l.SetAdapt(b.Context(), Adapt{Min: 1, Max: 1000}))
			ls = append(ls, l)
		}
		check(b, ls[0].Acquire(b.Context(), 1))
		got := make(chan time.Time, 1)
		go func() {
			check(b, ls[0].Acquire(b.Context(), 1))
			got <- time.Now()
		}()
		b.until(5 * time.Second)
		ls[1].Observe(time.Now(), Outcome{Limit: 600, Window: time.Minute})
		if wait := (<-got).Sub(b.begin.Add(5 * time.Second)); wait > 2*time.Second {
			b.Errorf("the limit was raised from 5 to 600 a minute, and a permit took %v from then on", wait)
		}
	})
}
