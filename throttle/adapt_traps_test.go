package throttle

import (
	"errors"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// What could stop a limit from learning, or make it learn something wrong.

// permits makes the limiter grant n permits one by one, at even steps over a window, and returns
// when.
func (a *learner) permits(n int64, window time.Duration) (granted []int64) {
	a.t.Helper()
	step := window / time.Duration(n)
	for range n {
		a.pass(step)
		if ok, err := a.l.TryAcquire(a.t.Context(), 1); err != nil || !ok {
			a.t.Fatalf("permit %d of %d: %v, %v", len(granted), n, ok, err)
		}
		granted = append(granted, a.server.now(a.t))
	}
	return granted
}

// TestLearnsFromLargeCosts: a limit that was cut below what one request costs comes back to that
// cost, for as long as there are such requests, and no longer.
func TestLearnsFromLargeCosts(t *testing.T) {
	t.Parallel()
	a := newLearner(t, Rate{Permits: 100, Interval: time.Second, Guard: -1}, script.Bracket{Start: 100, Min: 1, Max: 200})
	cost := func(n int64) *script.Report {
		r := a.next()
		r.Cost = n
		return r
	}
	refuse := func(n int64) int64 {
		r := cost(n)
		r.Seen = []script.Seen{{Refused: 1}}
		return a.send(r)
	}
	a.pass(time.Second)
	a.permits(1, time.Second)
	if got := refuse(60); got != 70 {
		t.Fatalf("refused: %d, want 70", got)
	}
	for range 4 {
		a.pass(300 * time.Millisecond)
		a.permits(1, time.Millisecond)
		if got := refuse(60); got < 60 {
			t.Fatalf("refused again: %d, and requests cost 60", got)
		}
	}
	if got := a.send(cost(90)); got != 90 {
		t.Errorf("somebody wants 90: limit %d", got)
	}
	if got := a.send(cost(1000)); got != 200 {
		t.Errorf("somebody wants more than the limit may ever be: %d, want 200", got)
	}
	a.pass(25 * time.Second)
	for range 8 {
		a.pass(2 * time.Second)
		a.permits(1, time.Millisecond)
		refuse(1)
	}
	if l := a.learnt(); l.Limit >= 60 {
		t.Errorf("long after the last large request: %d", l.Limit)
	}
}

// TestLargeCostsAreHeard: a caller that asks for more than an adaptive limit gives is told so,
// and may come back.
func TestLargeCostsAreHeard(t *testing.T) {
	s := fakeServer(t)
	c, err := New(s.rdb, Options{})
	check(t, err)
	t.Cleanup(func() { check(t, c.Close()) })
	l, err := c.LimiterWithRate("api", Rate{Permits: 10, Interval: time.Second})
	check(t, err)
	check(t, l.SetAdapt(t.Context(), Adapt{Min: 1, Max: 100}))
	if err := l.Acquire(t.Context(), 40); !errors.Is(err, ErrExceedsRate) {
		t.Fatalf("%v, want ErrExceedsRate", err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		r, err := l.Config(t.Context())
		check(t, err)
		if r.Permits == 40 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the limit stays at %d", r.Permits)
		}
		<-time.After(time.Millisecond)
	}
	check(t, l.Acquire(t.Context(), 40))
	if err := l.Acquire(t.Context(), 101); !errors.Is(err, ErrExceedsRate) {
		t.Errorf("more than max: %v", err)
	}
	if err := l.Acquire(t.Context(), 50); !errors.Is(err, ErrExceedsRate) { // causes the next report
		t.Errorf("more than the limit: %v", err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(time.Millisecond) {
		r, err := l.Config(t.Context())
		check(t, err)
		if r.Permits == 50 {
			break
		}
		if r.Permits > 50 || time.Now().After(deadline) {
			t.Fatalf("the limit is %d: no request may raise it to more than that costs", r.Permits)
		}
	}
}

// TestLearnsFromSlowResponses: a limit grows although the outcomes of its requests are known only
// after 15 windows.
func TestLearnsFromSlowResponses(t *testing.T) {
	noRaces(t)
	t.Parallel()
	for _, late := range []time.Duration{5 * time.Second, 15 * time.Second} {
		a := newLearner(t, Rate{Permits: 8, Interval: time.Second, Guard: -1}, script.Bracket{Start: 8, Min: 1, Max: 1000})
		a.cap, a.late, a.coarse = 1000, late, true
		a.run(3*late + 5*time.Second) // a step takes as long as its responses, and a window
		if l := a.learnt(); l.Limit < 16 {
			t.Errorf("responses after %v: %+v, want at least twice the 8 that it began with", late, l)
		}
	}
}

// TestLearnsAfterClockWasSetBack: Redis's clock goes back by an hour, and the limit still
// grows, is cut, and probes.
func TestLearnsAfterClockWasSetBack(t *testing.T) {
	noRaces(t)
	t.Parallel()
	a := newLearner(t, Rate{Permits: 4, Interval: time.Second, Guard: -1}, script.Bracket{Start: 4, Min: 1, Max: 1000})
	a.cap, a.coarse = 20, true
	a.run(12 * time.Second)
	found := a.learnt()
	if found.Cuts == 0 {
		t.Fatalf("no limit found: %+v", found)
	}
	a.pass(-time.Hour)
	check(t, a.rdb.Del(t.Context(), a.l.keys()[1], a.l.keys()[2]).Err()) // what was used lies in the future now
	a.seen, a.cap = nil, 10
	a.run(5 * time.Second)
	if l := a.learnt(); l.Limit > 10 || l.Cuts == found.Cuts {
		t.Errorf("refused after the clock was set back: %+v, want at most 10", l)
	}
	a.cap = 100
	a.run(30 * time.Second)
	if l := a.learnt(); l.Limit < 15 {
		t.Errorf("30 windows after the API was extended: %+v", l)
	}
}

// TestHeadersThatAlternate: the headers of an API alternate between two limits, and it accepts
// less than either. It is not asked for more after each time it refused.
func TestHeadersThatAlternate(t *testing.T) {
	noRaces(t)
	t.Parallel()
	a := newLearner(t, Rate{Permits: 20, Interval: time.Second, Guard: -1}, script.Bracket{Start: 20, Min: 1, Max: 1000})
	a.cap, a.tells, a.coarse = 20, []int64{50, 100}, true
	a.run(10 * time.Second)
	refused, cuts := a.refus, a.learnt().Cuts
	a.run(30 * time.Second)
	if l := a.learnt(); l.Cuts-cuts > 3 || a.refus-refused > 10 || l.Limit > 21 {
		t.Errorf("in 30 windows %d more cuts, %d requests refused: %+v", l.Cuts-cuts, a.refus-refused, l)
	}
}

// TestPausesOfWaves: nobody is kept from asking for longer than a refusal may cause.
func TestPausesOfWaves(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ longest, want time.Duration }{{0, 15 * time.Minute}, {time.Minute, time.Minute}, {100 * time.Hour, 6 * time.Hour}} {
		a := newLearner(t, Rate{Permits: 1000, Interval: 24 * time.Hour, Guard: -1}, script.Bracket{Start: 1000, Min: 1, Max: 2000})
		for range 2 {
			a.permits(1, time.Hour)
			r := a.next()
			r.Longest, r.Seen = tt.longest, []script.Seen{{Refused: 1}}
			a.send(r)
		}
		pause, err := a.rdb.HGet(t.Context(), "api", "pause").Int64()
		check(t, err)
		if got := micros(pause - a.server.now(t)); got != tt.want {
			t.Errorf("longest pause %v: %v, want %v", tt.longest, got, tt.want)
		}
	}
}

// TestLongEventsRemember: responses were slow when something was refused, and are fast since.
// What was granted before is still known when the event ends.
func TestLongEventsRemember(t *testing.T) {
	noRaces(t) // one caller
	t.Parallel()
	a := newLearner(t, Rate{Permits: 40, Interval: time.Second, Guard: -1}, script.Bracket{Start: 40, Min: 1, Max: 1000})
	tell := func(s script.Seen) {
		r := a.next()
		r.Seen = []script.Seen{s}
		a.send(r)
	}
	a.pass(10 * time.Second)
	a.permits(40, time.Second)
	tell(script.Seen{Age: 5500 * time.Millisecond, Accepted: 1})
	tell(script.Seen{Refused: 1})
	before := a.learnt()
	if !before.Event || before.Limit < 30 {
		t.Fatalf("refused: %+v", before)
	}
	a.pass(time.Second)
	for range 14 {
		a.permits(24, time.Second)
		tell(script.Seen{Age: 10 * time.Millisecond, Accepted: 24})
	}
	if l := a.learnt(); l.Event || l.Limit < 30 {
		t.Errorf("when the event is over: %+v, was %+v", l, before)
	}
}

// TestLargeCostsFillALimit: two requests fit into a limit, and leave a fifth of it unused. They
// use it as far as they can: it grows, up to what the API accepts.
func TestLargeCostsFillALimit(t *testing.T) {
	noRaces(t)
	t.Parallel()
	const costs = 40
	a := newLearner(t, Rate{Permits: 100, Interval: time.Second, Guard: -1}, script.Bracket{Start: 100, Min: 1, Max: 1000})
	accepted := int64(0)
	for i := range 2000 {
		a.pass(20 * time.Millisecond)
		for {
			ok, err := a.l.TryAcquire(t.Context(), costs)
			check(t, err)
			if !ok {
				break
			}
			accepted += costs
		}
		if i%25 == 24 && accepted > 0 {
			r := a.next()
			r.Cost, r.Seen = costs, []script.Seen{{Accepted: accepted}}
			a.send(r)
			accepted = 0
		}
	}
	if l := a.learnt(); l.Limit < 500 {
		t.Errorf("40 windows of an API that takes everything, and the limit is %d", l.Limit)
	}
}

// window uses what the limit gives within a second, and reports it: so many permits were refused,
// evenly over that second. The others were accepted, in responses that are late.
func (a *learner) window(refused int64) script.Learnt {
	a.t.Helper()
	n := int64(0)
	for range 200 {
		a.pass(5 * time.Millisecond)
		ok, err := a.l.TryAcquire(a.t.Context(), 1)
		check(a.t, err)
		if ok {
			n++
		}
	}
	r := a.next()
	r.Seen = []script.Seen{{Age: a.late, Accepted: max(n-refused, 0)}}
	const parts = 8
	for i := range int64(parts) {
		if n := refused*(i+1)/parts - refused*i/parts; n > 0 {
			r.Seen = append(r.Seen, script.Seen{Age: time.Second * time.Duration(parts-1-i) / parts, Refused: n})
		}
	}
	a.send(r)
	return a.learnt()
}

// TestEventsEnd: an API suddenly accepts less, its responses are late, and it refuses one request
// every few windows. That does not keep one event going for ever. (docs/adaptive.md says that the
// limit of such an API falls meanwhile.)
func TestEventsEnd(t *testing.T) {
	noRaces(t)
	t.Parallel()
	a := newLearner(t, Rate{Permits: 100, Interval: time.Second, Guard: -1}, script.Bracket{Start: 100, Min: 1, Max: 100})
	a.late = 2 * time.Second
	for range 8 {
		a.window(0)
	}
	if l := a.window(50); !l.Event {
		t.Fatalf("half was refused: %+v", l)
	}
	inRow, most := 0, 0
	for i := range 80 {
		inRow++
		if !a.window(int64((i % 4) / 3)).Event {
			inRow = 0
		}
		most = max(most, inRow)
	}
	if most > 25 {
		t.Errorf("one event lasted for %d of 80 windows: %+v", most, a.learnt())
	}
}

// TestSomebodyElseTakesMore: somebody else uses the API, a little for a window, then, at once or
// some windows later, a third of it. The end of the first refusals does not hide who causes the
// next ones.
func TestSomebodyElseTakesMore(t *testing.T) {
	noRaces(t)
	t.Parallel()
	for clean := range 4 { // windows in which the other takes nothing
		a := newLearner(t, Rate{Permits: 100, Interval: time.Second, Guard: -1}, script.Bracket{Start: 100, Min: 1, Max: 100})
		for range 6 {
			a.window(0)
		}
		if l := a.window(3); !l.Event || !l.Others.IsZero() {
			t.Fatalf("somebody else took 3 of 100: %+v", l)
		}
		for range clean {
			a.window(0)
		}
		for _, refused := range []int64{33, 0, 0, 0, 0} {
			a.window(refused)
		}
		if l := a.learnt(); l.Event || l.Others.IsZero() {
			t.Errorf("%d windows later he took a third: %+v", clean, l)
		}
	}
}
