package throttle

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A caller that cannot be served by its deadline is told so at once; one that can is served as if
// nobody else had asked.

// toldWithin is how soon a caller without a chance is told.
const toldWithin = 50 * time.Millisecond

// caller is a request that may have no chance, and what became of it.
type caller struct {
	n        int64
	begin    time.Duration // when it asked, after the test began
	deadline time.Duration // after that
	at       time.Duration // when it was answered
	err      error         // ErrExceedsDeadline, however it was told
}

func (c *caller) served() bool { return c.err == nil }

// hopeless reports whether it was told at once that it has no chance.
func (c *caller) hopeless() bool {
	return errors.Is(c.err, ErrExceedsDeadline) && c.at-c.begin <= toldWithin
}

// asking is one way to ask for permits by a deadline.
type asking func(ctx context.Context, l *Limiter, c *caller) error

func byAcquire(ctx context.Context, l *Limiter, c *caller) error {
	ctx, cancel := context.WithTimeout(ctx, c.deadline)
	defer cancel()
	return l.Acquire(ctx, c.n)
}

func byGroup(ctx context.Context, l *Limiter, c *caller) error {
	wide := must(l.c.LimiterWithRate(l.Name()+":wide", rate("1000/1h")))
	ctx, cancel := context.WithTimeout(ctx, c.deadline)
	defer cancel()
	return must(l.c.Group(wide, l)).AcquireEach(ctx, 2*c.n, c.n)
}

func byTry(ctx context.Context, l *Limiter, c *caller) error {
	ok, err := l.TryAcquireFor(ctx, c.n, c.deadline)
	if !ok && err == nil {
		err = ErrExceedsDeadline
	}
	return err
}

func byReserve(ctx context.Context, l *Limiter, c *caller) error {
	r, err := l.Reserve(ctx, c.n, c.deadline)
	if err != nil {
		return err
	}
	return r.Wait(ctx)
}

// crowd makes callers ask, in their order, and returns a function that waits for all.
func (b *bench) crowd(l *Limiter, ask asking, callers []*caller) (wait func()) {
	var wg sync.WaitGroup
	for _, c := range callers {
		c.begin = time.Since(b.begin)
		wg.Go(func() {
			c.err = ask(b.Context(), l, c)
			c.at = time.Since(b.begin)
		})
		synctest.Wait()
	}
	return wg.Wait
}

// callers are n who ask for one permit each.
func callers(n int, deadline time.Duration) []*caller {
	all := make([]*caller, n)
	for i := range all {
		all[i] = &caller{n: 1, deadline: deadline}
	}
	return all
}

func tally(all []*caller, what func(*caller) bool) (n int) {
	for _, c := range all {
		if what(c) {
			n++
		}
	}
	return n
}

// expectTold checks that callers were served at these times, to the millisecond and in their
// order, and that all others were told at once.
func (b *bench) expectTold(all []*caller, want ...time.Duration) {
	b.Helper()
	var got []time.Duration
	late, latest := 0, time.Duration(0)
	for _, c := range all {
		switch {
		case c.served():
			got = append(got, c.at.Truncate(time.Millisecond))
		case !errors.Is(c.err, ErrExceedsDeadline):
			b.Errorf("asked at %v: %v at %v", c.begin, c.err, c.at)
		case !c.hopeless():
			late, latest = late+1, max(latest, c.at-c.begin)
		}
	}
	if !slices.Equal(got, want) {
		b.Errorf("%d served at %v,\nwant %d at %v", len(got), got, len(want), want)
	}
	if late > 0 {
		b.Errorf("%d of %d without a chance were told late, after up to %v", late, len(all)-len(got), latest)
	}
}

// every is times of n each, d apart.
func every(d time.Duration, n, times int) (all []time.Duration) {
	for i := range times {
		all = append(all, slices.Repeat([]time.Duration{time.Duration(i) * d}, n)...)
	}
	return all
}

func TestHopelessCallersAreToldAtOnce(t *testing.T) {
	for name, ask := range map[string]asking{"Acquire": byAcquire, "AcquireEach": byGroup, "TryAcquireFor": byTry, "Reserve": byReserve} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				l := b.limited(guarded("10/1s"))
				all := callers(200, 5*time.Second)
				b.crowd(l, ask, all)()
				b.expectTold(all, every(ms(1010), 10, 5)...)
			})
		})
	}
}

// The same for a burst, whose callers ask in any order.
func TestHopelessBurst(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(guarded("10/1s"))
		all := callers(200, 5*time.Second)
		var wg sync.WaitGroup
		for _, c := range all {
			wg.Go(func() {
				c.err = byAcquire(b.Context(), l, c)
				c.at = time.Since(b.begin)
			})
		}
		wg.Wait()
		slices.SortFunc(all, func(x, y *caller) int { return cmp.Compare(x.at, y.at) })
		b.expectTold(all, every(ms(1010), 10, 5)...)
	})
}

// Each process knows its own callers, and the others by how the log fills up.
func TestHopelessCallersOfTwoProcesses(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		one := b.limited(guarded("10/1s"))
		two := b.limiter(b.client())
		first, second := callers(100, 5*time.Second), callers(100, 5*time.Second)
		wait := b.crowd(one, byAcquire, first)
		b.crowd(two, byAcquire, second)()
		wait()
		all := slices.Concat(first, second)
		if n := tally(all, (*caller).served); n != 50 {
			b.Errorf("%d served, want 50", n)
		}
		// Each process may get all of the four intervals that begin by then, as far as it can
		// know.
		if n := tally(all, (*caller).hopeless); n < 200-10-2*4*10 {
			b.Errorf("%d told at once, want at least 110", n)
		}
		for _, callers := range [][]*caller{first, second} {
			var served []time.Duration
			var latest time.Duration
			for i, c := range callers {
				if c.served() {
					served = append(served, c.at)
				} else {
					latest = max(latest, c.at)
				}
				if c.served() && i > 0 && !callers[i-1].served() {
					b.Errorf("caller %d was served, and the one before it was not", i)
				}
			}
			if !slices.IsSorted(served) {
				b.Errorf("out of turn: %v", served)
			}
			// What others leave of the last interval is reserved half a horizon before it, and a
			// jitter.
			if latest > ms(4040-600+75)+toldWithin {
				b.Errorf("some were told after %v, though the log ruled them out before", latest)
			}
		}
	})
}

// Deadlines that differ belong to each caller.
func TestHopelessByTheirOwnDeadlines(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(guarded("10/1s"))
		all := callers(400, 0)
		for i, c := range all {
			c.deadline = 3*time.Second + ms(10*i+5)
		}
		b.crowd(l, byAcquire, all)()
		served := 0 // the i-th of those with a chance is, i/10 x 1.01s later
		for i, c := range all {
			chance := time.Duration(served/10)*ms(1010) <= c.deadline
			if c.served() != chance || !chance && !c.hopeless() {
				b.Errorf("caller %d, with %v and %d before it: %v at %v", i, c.deadline, served, c.err, c.at)
			}
			if chance {
				served++
			}
		}
	})
}

// A call asks for a bounded number of different things. A caller that is left out is behind those
// that have no reservation yet, and is not asked for again and again.
func TestManyDeadlines(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(guarded("10/1s"))
		all := callers(400, 0)
		before := l.c.Stats().Calls
		var wg sync.WaitGroup
		for i, c := range all {
			c.deadline = time.Minute + ms(i)
			wg.Go(func() { c.err = byAcquire(b.Context(), l, c) })
		}
		b.until(5 * time.Second)
		if calls := l.c.Stats().Calls - before; calls > 50 {
			b.Errorf("%d calls in 5s", calls)
		}
		wg.Wait()
		if n := tally(all, (*caller).served); n != len(all) {
			b.Errorf("%d of %d served within a minute", n, len(all))
		}
	})
}

// A caller without a deadline to wait for is not kept waiting by those that have one.
func TestTryBehindManyDeadlines(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(guarded("10/1s"))
		all := callers(200, 0)
		for i, c := range all {
			c.deadline = time.Minute + ms(i)
		}
		wait := b.crowd(l, byAcquire, all)
		b.until(ms(500))
		b.expectTry(l, 1, false)
		if took := time.Since(b.begin) - ms(500); took > toldWithin {
			b.Errorf("TryAcquire took %v", took)
		}
		wait()
	})
}

func TestNewcomersWhileOthersWait(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(guarded("10/1s"))
		first := callers(60, 20*time.Second)
		wait := b.crowd(l, byAcquire, first)
		for at := ms(500); at < 5*time.Second; at += ms(900) {
			b.until(at)
			next := ms(6060) - at // when the next newcomer's permit is due
			late, none := callers(3, next-ms(10)), callers(1, ms(100))
			waitLate, waitNone := b.crowd(l, byTry, late), b.crowd(l, byReserve, none)
			waitLate()
			waitNone()
			b.expectTold(late)
			b.expectTold(none)
		}
		last := callers(1, 20*time.Second)
		b.crowd(l, byAcquire, last)()
		b.expectTold(last, ms(6060))
		wait()
		b.expectTold(first, every(ms(1010), 10, 6)...)
	})
}

// A caller that leaves makes room for newcomers; a caller that was denied before stays denied.
func TestHopelessAfterOthersLeft(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(guarded("10/1s"))
		ctx, leave := context.WithCancel(b.Context())
		leaving := &arrivals{b: b}
		for range 25 {
			leaving.wait(ctx, l, 1)
		}
		stay := callers(25, ms(5500))
		wait := b.crowd(l, byAcquire, stay)
		told := callers(20, ms(4500))
		b.crowd(l, byAcquire, told)()
		b.expectTold(told)
		b.until(ms(500))
		leave()
		leaving.wg.Wait()
		after := callers(15, ms(3000)) // until 3.5s, with 25 before them, and ten served
		b.crowd(l, byAcquire, after)()
		b.expectTold(after, slices.Repeat([]time.Duration{ms(3030)}, 5)...)
		wait()
		b.expectTold(stay, slices.Concat(slices.Repeat([]time.Duration{ms(1010)}, 10), slices.Repeat([]time.Duration{ms(2020)}, 10), slices.Repeat([]time.Duration{ms(3030)}, 5))...)
	})
}

func TestHopelessOfOtherLimits(t *testing.T) {
	smooth := guarded("10/1s")
	smooth.Smooth = true
	calendar := guarded("10/1s")
	calendar.Window, calendar.Offset = Calendar, ms(300)
	for name, c := range map[string]struct {
		r     Rate
		pause time.Duration
		want  []time.Duration
	}{
		"smooth":   {smooth, 0, every(ms(101), 1, 50)},
		"calendar": {calendar, 0, slices.Concat(slices.Repeat([]time.Duration{0}, 10), shift(ms(310), every(time.Second, 10, 5)))},
		"paused":   {guarded("10/1s"), 2 * time.Second, shift(2*time.Second, every(ms(1010), 10, 3))},
	} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				l := b.limited(c.r)
				check(b, l.Pause(b.Context(), c.pause))
				all := callers(200, 5*time.Second)
				b.crowd(l, byAcquire, all)()
				b.expectTold(all, c.want...)
			})
		})
	}
}

func shift(d time.Duration, all []time.Duration) []time.Duration {
	for i := range all {
		all[i] += d
	}
	return all
}
