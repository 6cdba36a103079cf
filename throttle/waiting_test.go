package throttle

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/httplimit"
)

// arrival is when and with what error a wait ended; -1 before it has.
type arrival struct {
	at  time.Duration
	err error
}

// arrivals are waits that were begun one after the other.
type arrivals struct {
	b     *bench
	wg    sync.WaitGroup
	waits []*arrival
}

// wait begins a wait; it has asked for its reservation when wait returns.
func (a *arrivals) wait(ctx context.Context, l httplimit.Acquirer, n int64) *arrival {
	w := &arrival{at: -1}
	a.waits = append(a.waits, w)
	a.wg.Go(func() {
		err := l.Acquire(ctx, n)
		w.at, w.err = time.Since(a.b.begin), err
	})
	synctest.Wait()
	return w
}

// served is how many waits have ended with permits by now.
func (a *arrivals) served() (n int) {
	synctest.Wait()
	for _, w := range a.waits {
		if w.at >= 0 && w.err == nil {
			n++
		}
	}
	return n
}

// expect waits for all and checks when they ended, to the millisecond.
func (a *arrivals) expect(want ...time.Duration) {
	a.b.Helper()
	a.wg.Wait()
	var got []time.Duration
	for i, w := range a.waits {
		got = append(got, w.at.Truncate(time.Millisecond))
		if w.err != nil {
			a.b.Errorf("wait %d: %v", i, w.err)
		}
	}
	if !slices.Equal(got, want) {
		a.b.Errorf("permits were had at %v, want %v", got, want)
	}
}

func TestWaitersAreServedInOrderAtExactTimes(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := rate("2/1s")
		r.Guard = ms(10)
		l := b.limited(r)
		a := &arrivals{b: b}
		for range 8 {
			a.wait(b.Context(), l, 1)
		}
		a.expect(0, 0, ms(1010), ms(1010), ms(2020), ms(2020), ms(3030), ms(3030))
		if s := l.c.Stats(); s.Stale != 0 || s.Late != 0 || s.Waiting != 0 || s.Grants != 8 {
			b.Errorf("%+v", s)
		}
	})
}

// Within the horizon the order is that of asking across Clients, too.
func TestClientsAreServedInOrder(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		one := b.limited(rate("2/1s"))
		two := b.limiter(b.client())
		a := &arrivals{b: b}
		for i := range 5 {
			a.wait(b.Context(), []*Limiter{one, two}[i%2], 1)
		}
		a.expect(0, 0, ms(1000), ms(1000), ms(2000))
	})
}

func TestBigRequestKeepsItsTurn(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("4/1s"))
		a := &arrivals{b: b}
		for _, n := range []int64{4, 1, 4, 3, 1} {
			a.wait(b.Context(), l, n)
		}
		a.expect(0, ms(1000), ms(2000), ms(1000), ms(3000)) // the three fit beside the one, and delay nobody
	})
}

// What is given back goes to those who wait, in the order in which they came, and the rest to newcomers. A gap that is not
// worth a call of all who wait goes to newcomers alone, and delays nobody.
func TestWhoWaitsMovesUp(t *testing.T) {
	for _, tt := range []struct {
		rate             string
		waits            int64 // permits of the one who waits behind those who leave
		served           time.Duration
		first, afterThem int // how many of ten newcomers are served at 1s and at 2s
	}{
		{"10/1s", 5, ms(1000), 5, 5},
		{"100/1s", 95, ms(2000), 10, 0},
	} {
		underFakeTime(t, func(b *bench) {
			l := b.limited(rate(tt.rate))
			b.expectTry(l, must(l.Config(b.Context())).Permits, true)
			ctx, cancel := context.WithCancel(b.Context())
			cancelled, a := &arrivals{b: b}, &arrivals{b: b}
			for range 10 {
				cancelled.wait(ctx, l, 1)
			}
			a.wait(b.Context(), l, tt.waits)
			b.until(ms(300))
			cancel()
			cancelled.wg.Wait()
			for _, w := range cancelled.waits {
				if !errors.Is(w.err, context.Canceled) || w.at != ms(300) {
					b.Errorf("cancelled wait ended at %v with %v", w.at, w.err)
				}
			}
			time.Sleep(ms(150)) // those who wait move up at most once in 100 ms
			newcomers := b.limiter(b.client())
			for range 10 {
				a.wait(b.Context(), newcomers, 1)
			}
			want := append([]time.Duration{tt.served}, slices.Repeat([]time.Duration{ms(1000)}, tt.first)...)
			a.expect(append(want, slices.Repeat([]time.Duration{ms(2000)}, tt.afterThem)...)...)
		})
	}
}

func TestChangesReachWaitersOfOtherClients(t *testing.T) {
	changes := map[string]struct {
		first  func(ctx context.Context, l *Limiter) error // before anybody waits
		change func(ctx context.Context, l *Limiter) error // 500 ms later
		err    error
		from   time.Duration // when the wait may end at the earliest
	}{
		"UpdateRate": {change: func(ctx context.Context, l *Limiter) error { _, err := l.UpdateRate(ctx, rate("2/5s")); return err }, from: ms(500)},
		"SetRate":    {change: func(ctx context.Context, l *Limiter) error { return l.SetRate(ctx, rate("1/5s")) }, from: ms(500)},
		"Delete":     {change: func(ctx context.Context, l *Limiter) error { _, err := l.Delete(ctx); return err }, err: ErrNotInitialized, from: ms(500)},
		"Pause":      {change: func(ctx context.Context, l *Limiter) error { return l.Pause(ctx, 10*time.Second) }, from: ms(10500)},
		"Resume": {
			first: func(ctx context.Context, l *Limiter) error {
				return errors.Join(l.SetRate(ctx, rate("1/5s")), l.Pause(ctx, time.Minute))
			},
			change: func(ctx context.Context, l *Limiter) error { return l.Resume(ctx) }, from: ms(500),
		},
	}
	for name, c := range changes {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				l := b.limited(rate("1/5s"))
				b.expectTry(l, 1, true)
				if c.first != nil {
					check(b, c.first(b.Context(), l))
				}
				a := &arrivals{b: b}
				w := a.wait(b.Context(), b.limiter(b.client()), 1)
				b.until(ms(500))
				check(b, c.change(b.Context(), l))
				a.wg.Wait()
				if late := w.at - c.from; late < 0 || late > ms(100) || !errors.Is(w.err, c.err) {
					b.Errorf("the waiter was done at %v with %v; want %v at %v or up to 100ms later", w.at, w.err, c.err, c.from)
				}
			})
		})
	}
}

// A rate that was lowered also holds for those who already had a reservation.
func TestLoweredRateMovesPlaces(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("4/1s"))
		b.expectTry(l, 4, true)
		a := &arrivals{b: b}
		waiting := b.limiter(b.client())
		for range 4 {
			a.wait(b.Context(), waiting, 1)
		}
		b.until(ms(500))
		l.UpdateRate(b.Context(), rate("2/1s"))
		a.expect(ms(1000), ms(1000), ms(2000), ms(2000))
	})
}

func TestDeadlinesAreToldAtOnce(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("1/1s"))
		b.expectTry(l, 1, true)
		ctx, cancel := context.WithTimeout(b.Context(), 2500*time.Millisecond)
		defer cancel()
		a, none := &arrivals{b: b}, &arrivals{b: b}
		a.wait(ctx, l, 1)
		a.wait(ctx, l, 1)
		if w := none.wait(ctx, l, 1); !errors.Is(w.err, ErrExceedsDeadline) || w.at != 0 {
			b.Errorf("the third would come at 3s, after the deadline: told %v at %v", w.err, w.at)
		}
		a.expect(ms(1000), ms(2000))
		if ok, err := l.TryAcquireFor(b.Context(), 1, ms(900)); ok || err != nil || time.Since(b.begin) >= ms(2001) {
			b.Errorf("TryAcquireFor: %v, %v at %v", ok, err, time.Since(b.begin))
		}
	})
}

func TestCloseEndsWaitsAndGivesPlacesBack(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		watch := b.limited(rate("1/1s"))
		b.expectTry(watch, 1, true)
		c := b.client()
		a := &arrivals{b: b}
		for range 3 {
			a.wait(b.Context(), b.limiter(c), 1)
		}
		if u, err := watch.Inspect(b.Context()); err != nil || u.Reserved == 0 {
			b.Fatalf("%+v, %v: nothing is reserved", u, err)
		}
		check(b, c.Close())
		a.wg.Wait()
		for _, w := range a.waits {
			if !errors.Is(w.err, ErrClosed) || w.at >= ms(1) {
				b.Errorf("a wait ended at %v with %v", w.at, w.err)
			}
		}
		if u, err := watch.Inspect(b.Context()); err != nil || u.Reserved != 0 {
			b.Errorf("%+v, %v: reservations were kept", u, err)
		}
		check(b, c.Close())
	})
}

// If the holder of a Reservation comes late, it is exchanged for the next one.
func TestLateReservationIsExchanged(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := rate("1/1s")
		r.Guard = ms(20)
		l := b.limited(r)
		res, err := l.Reserve(b.Context(), 1, 0)
		check(b, err)
		b.until(ms(500))
		check(b, res.Wait(b.Context()))
		if s := l.c.Stats(); s.Stale != 1 || s.Grants != 1 {
			b.Errorf("%+v", s)
		}
		check(b, l.Acquire(b.Context(), 1))
		if at := time.Since(b.begin).Truncate(time.Millisecond); at != ms(1520) {
			b.Errorf("the next permit came at %v, want 1.52s: an interval and a guard after its use", at)
		}
	})
}

// A Client that does not know the limiter yet keeps its position, however far ahead that is.
func TestFreshClientKeepsItsTurn(t *testing.T) {
	t.Parallel()
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("10/1h"))
		b.expectTry(l, 10, true)
		a := &arrivals{b: b}
		a.wait(b.Context(), b.limiter(b.client()), 5)
		a.wait(b.Context(), l, 10)
		a.expect(time.Hour, 2*time.Hour)
	})
}

// Permits that are released go to those who wait, in their order, and to those of other
// processes, too.
func TestReleaseMovesWaitersUp(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("10/1m"))
		b.expectTry(l, 10, true)
		a := &arrivals{b: b}
		waiting := b.limiter(b.client())
		for range 3 {
			a.wait(b.Context(), waiting, 4)
		}
		b.until(10 * time.Second)
		check(b, l.Release(b.Context(), 9))
		a.expect(10*time.Second, 10*time.Second, 70*time.Second) // the first two count from their use
	})
}

// A caller that has waited for a slow limit finds it free as soon as it is.
func TestSlowLimitIsNotAskedLate(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("10/10s"))
		b.expectTry(l, 10, true)
		a := &arrivals{b: b}
		for range 12 {
			a.wait(b.Context(), l, 1)
		}
		a.wg.Wait() // the last two at 20 s, when eight more are free
		for range 8 {
			a.wait(b.Context(), l, 1).mustCome(b, 20*time.Second)
		}
	})
}

// mustCome checks that the wait is over, at a time to the millisecond.
func (w *arrival) mustCome(b *bench, at time.Duration) {
	b.Helper()
	if w.err != nil || w.at.Truncate(time.Millisecond) != at {
		b.Errorf("a permit was had at %v with %v, want it at %v", w.at, w.err, at)
	}
}

// TestReserveBeyondTheHorizon: if permits are due further ahead than may be reserved, Reserve
// waits until they are not, and they are due at the same time as if they had been reserved at
// once.
func TestReserveBeyondTheHorizon(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		const every = time.Second
		l := b.limited(rate("1/1s"))
		began := time.Now()
		for i := range 8 {
			r, err := l.Reserve(b.Context(), 1, 20*time.Second)
			check(b, err)
			turn := time.Since(began) + r.Delay()
			if want := time.Duration(i) * every; !r.OK() || turn < want || turn > want+ms(100) {
				b.Errorf("reservation %d: %v, its turn after %v, want %v", i, r.OK(), turn, want)
			}
			if r.Delay() > 3*every {
				b.Errorf("reservation %d: %v ahead", i, r.Delay())
			}
		}
	})
}

// A wait without end waits until the permits are due.
func TestWaitsForEver(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("1/1s"))
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				ok, err := l.TryAcquireFor(context.Background(), 1, math.MaxInt64)
				check(b, err)
				if !ok {
					b.Error("refused")
				}
			})
		}
		wg.Wait()
	})
}
