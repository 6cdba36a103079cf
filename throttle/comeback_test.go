package throttle

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// loop has one caller of a limiter acquire a permit again and again, with a rest after each, until
// ctx ends. It returns how many it got.
func loop(ctx context.Context, a *arrivals, l *Limiter, rest func(i int) time.Duration) func() int {
	var n atomic.Int64
	a.wg.Go(func() {
		for l.Acquire(ctx, 1) == nil {
			time.Sleep(rest(int(n.Add(1))))
		}
	})
	return func() int { return int(n.Load()) }
}

func noRest(int) time.Duration { return 0 }

// Callers that wait alone in their processes and come back at once share no call with anybody, and
// yet need less than one call a permit. The limit is used in whole, by all in equal shares.
func TestLoneCallersNeedFewCalls(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		rate    string
		clients int
		most    float64 // calls a permit
	}{
		{"a share is less than 2", "20/1s", 16, 2},
		{"few of a slow limit", "20/1s", 2, 0.7},
		{"many of a fast limit", "1000/1s", 64, 0.5},
		{"of a smooth limit", "200/1s smooth", 16, 1.1},
		{"with a log in buckets", "200/1s", 32, 0.7},
		{"alone", "100/1s", 1, 0.5},
		{"of a limit without many", "5/1s", 2, 1.5},
	}
	for _, tt := range tests[:quarter(len(tests))] {
		t.Run(tt.name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				r := b.parsed(tt.rate)
				ctx, cancel := context.WithCancel(b.Context())
				a := &arrivals{b: b}
				var ls []*Limiter
				for i := range tt.clients {
					l := b.limiter(b.client())
					if i == 0 {
						check(b, l.SetRate(ctx, r))
					}
					ls = append(ls, l)
					loop(ctx, a, l, noRest)
				}
				b.until(3 * (r.Interval + r.Guard))
				calls, grants := count(ls)
				b.until(13 * (r.Interval + r.Guard))
				callsAfter, grantsAfter := count(ls)
				cancel()
				a.wg.Wait()
				calls, grants = callsAfter-calls, grantsAfter-grants
				b.Logf("%d permits, %.2f calls each", grants, float64(calls)/float64(grants))
				if float64(calls) > tt.most*float64(grants) {
					b.Errorf("%d calls for %d permits, want at most %.1f each", calls, grants, tt.most)
				}
				if least := 10 * r.Permits * 98 / 100; grants < least {
					b.Errorf("%d permits in ten intervals of %s", grants, r)
				}
			})
		})
	}
}

// What was asked for beyond the need of a caller goes to the others when that caller stays away.
func TestLoneCallerThatStaysAway(t *testing.T) {
	t.Parallel()
	for _, rate := range []string{"40/1s", "40/1s smooth", "1000/1s", "8/250ms"} {
		t.Run(rate, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				r := b.parsed(rate)
				stays, leaves := b.limiter(b.client()), b.limiter(b.client())
				check(b, stays.SetRate(b.Context(), r))
				ctx, cancel := context.WithCancel(b.Context())
				a := &arrivals{b: b}
				step := r.Interval + r.Guard
				var gone atomic.Bool
				got := loop(ctx, a, stays, noRest)
				left := loop(ctx, a, leaves, func(int) time.Duration {
					if time.Since(b.begin) > 5*step {
						gone.Store(true)
						<-ctx.Done()
					}
					return 0
				})
				b.until(7 * step)
				if !gone.Load() || left() == 0 {
					b.Fatal("the other caller is still there")
				}
				before, calls := got(), leaves.c.Stats().Calls
				b.until(12 * step)
				n := got() - before
				if least := int(5*r.Permits - 2); n < least {
					b.Errorf("%d permits in five intervals of %s, which nobody else uses", n, r)
				}
				if n := leaves.c.Stats().Calls - calls; n > 0 {
					b.Errorf("%d calls of a process whose only caller is away", n)
				}
				cancel()
				a.wg.Wait()
			})
		})
	}
}

// Nobody else of the process is refused, or kept waiting, for permits that a loop has not come for.
func TestLoneCallerIsJoined(t *testing.T) {
	t.Parallel()
	join := map[string]func(b *bench, l *Limiter, left int64) error{
		"TryAcquire": func(b *bench, l *Limiter, left int64) error {
			if !b.try(l, 1) {
				return fmt.Errorf("TryAcquire was refused, with %d permits left", left)
			}
			return nil
		},
		"Reserve": func(b *bench, l *Limiter, left int64) error {
			r, err := l.Reserve(b.Context(), left, 0)
			if err == nil && !r.OK() {
				return fmt.Errorf("Reserve(%d) was refused, with as many left", left)
			}
			return err
		},
		"Acquire": func(b *bench, l *Limiter, left int64) error {
			began := time.Now()
			err := l.Acquire(b.Context(), left)
			if took := time.Since(began); took > ms(5) {
				return fmt.Errorf("Acquire(%d) waited for %v, with as many left", left, took)
			}
			return err
		},
	}
	for name, ask := range join {
		for left := int64(1); left < 12; left++ {
			t.Run(fmt.Sprint(name, " with ", left, " left"), func(t *testing.T) {
				underFakeTime(t, func(b *bench) {
					l := b.limited(b.parsed("80/1s"))
					for range 2*80 - left { // the second interval begins with the 81st
						check(b, l.Acquire(b.Context(), 1))
					}
					check(b, ask(b, l, left))
				})
			})
		}
	}
}

// Where Redis is not near, permits beyond the one that is waited for would come too late. Nothing of
// the limit is lost for them.
func TestLoneCallersFarAway(t *testing.T) {
	t.Parallel()
	for _, roundTrip := range []time.Duration{ms(20), us(300), ms(1), ms(3), ms(6)}[:quarter(5)] {
		t.Run(roundTrip.String(), func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				r := b.parsed("20/250ms")
				ctx, cancel := context.WithCancel(b.Context())
				a := &arrivals{b: b}
				var ls []*Limiter
				for i := range 8 {
					l := b.limiter(b.clientOf(b.away(roundTrip, 0)))
					if i == 0 {
						check(b, l.SetRate(ctx, r))
					}
					ls = append(ls, l)
					loop(ctx, a, l, noRest)
				}
				b.until(20 * (r.Interval + r.Guard)) // a process that starts cannot tell yet how far Redis is
				_, before := count(ls)
				b.until(40 * (r.Interval + r.Guard))
				_, grants := count(ls)
				cancel()
				a.wg.Wait()
				if grants -= before; grants < 20*r.Permits*95/100 {
					b.Errorf("%d permits in 20 intervals of %s, %v from Redis", grants, r, roundTrip)
				}
			})
		})
	}
}

// Two callers of a process are served in the order in which they asked, also where one of them was
// alone before.
func TestLoneCallerOvertakesNobody(t *testing.T) {
	t.Parallel()
	for after := 0; after < 80; after += 80 / quarter(80) {
		t.Run(fmt.Sprint("after ", us(25*after)), func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				r := b.parsed("40/1s")
				l := b.limited(r)
				ctx, cancel := context.WithCancel(b.Context())
				a := &arrivals{b: b}
				got := loop(ctx, a, l, func(int) time.Duration { return us(50) })
				b.until(2*(r.Interval+r.Guard) + us(25*after)) // while the loop takes the permits of an interval
				before := got()
				check(b, l.Acquire(ctx, 2))
				if n := got() - before; n > 1 { // the one that had asked before
					b.Errorf("a loop got %d permits while another caller of its process waited", n)
				}
				cancel()
				a.wg.Wait()
			})
		})
	}
}
