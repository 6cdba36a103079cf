package throttle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// What users were promised of reservations: never early, given up if nobody comes for them,
// offered to those who wait.

// A caller that asks a limit that has room is served at once, even if a reply comes too late to
// be useful: it takes a few more round trips, and delays nobody else.
func TestStalePermitOfALimitThatHasRoom(t *testing.T) {
	t.Parallel()
	for _, r := range []string{"100000/24h", "3000/1h", "1000000/720h"} {
		for _, late := range []int64{1, 2, 3} {
			t.Run(fmt.Sprint(r, late), func(t *testing.T) {
				underFakeTime(t, func(b *bench) {
					const roundTrip, slowest = 2 * time.Millisecond, 80 * time.Millisecond
					var until atomic.Int64
					l := b.troubled(guarded(r), func(call int64, send func() *redis.Cmd) *redis.Cmd {
						if call <= until.Load() {
							return slow(slowest)(send)
						}
						return slow(roundTrip)(send)
					})
					for range 400 { // beyond 256 entries a log is kept in buckets
						check(b, l.Acquire(b.Context(), 1))
						time.Sleep(time.Second)
					}
					until.Store(l.c.core.Redis.(*faulty).calls.Load() + late)
					a := &arrivals{b: b}
					from := time.Since(b.begin)
					first := a.wait(b.Context(), l, 1)
					b.until(from + time.Duration(late)*slowest + 5*time.Millisecond)
					next := a.wait(b.Context(), l, 1)
					a.wg.Wait()
					if l.c.Stats().Stale == 0 {
						t.Fatal("no permit was stale")
					}
					for _, w := range []*arrival{first, next} {
						if took := w.at - from - time.Duration(late)*slowest; w.err != nil || took > 100*time.Millisecond {
							t.Errorf("served %v after the last slow reply, %v", took, w.err)
						}
					}
				})
			})
		}
	}
}

// After a change has returned, its own process hands out nothing that it had in stock before;
// other processes do so for at most 100 ms and a round trip.
func TestChangesEndStocks(t *testing.T) {
	r := rate("10000/100s")
	r.Guard = time.Second // a stock lasts half of that
	changes := map[string]func(ctx context.Context, l *Limiter) error{
		"Pause":      func(ctx context.Context, l *Limiter) error { return l.Pause(ctx, time.Minute) },
		"UpdateRate": func(ctx context.Context, l *Limiter) error { return second(l.UpdateRate(ctx, rate("1/1m"))) },
		"SetRate":    func(ctx context.Context, l *Limiter) error { return l.SetRate(ctx, rate("1/1m")) },
		"Delete":     func(ctx context.Context, l *Limiter) error { return second(l.Delete(ctx)) },
	}
	for name, change := range changes {
		for _, own := range []bool{true, false} {
			for _, inFlight := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, own %v, in flight %v", name, own, inFlight), func(t *testing.T) {
					underFakeTime(t, func(b *bench) {
						check(b, b.limiter(b.client()).SetRate(b.Context(), r))
						way := &distant{Scripter: b.rdb, roundTrip: ms(2)}
						l := b.limiter(b.clientOf(way)) // which cannot listen to anything
						changed := l
						if !own {
							changed = b.limiter(b.client())
						}
						stocked := func() bool { // no call is answered in this time
							ctx, cancel := context.WithTimeout(b.Context(), time.Microsecond)
							defer cancel()
							return l.Acquire(ctx, 1) == nil
						}
						for range 100 {
							check(b, l.Acquire(b.Context(), 1))
						}
						if !stocked() {
							t.Fatal("there is no stock")
						}
						flight := &arrivals{b: b}
						if inFlight { // a call whose reply brings a stock when the change has returned
							time.Sleep(ms(600))
							synctest.Wait()
							way.roundTrip = ms(20)
							flight.wait(b.Context(), l, 1)
							time.Sleep(ms(11))
							synctest.Wait()
							way.roundTrip = ms(2)
						}
						check(b, change(b.Context(), changed))
						flight.wg.Wait()
						if !own {
							time.Sleep(ms(102))
						}
						if stocked() {
							t.Error("a permit of before the change")
						}
					})
				})
			}
		}
	}
}

// A reservation that nobody comes for costs nothing once it was due, and its permits count as
// used.
func TestReservationsThatAreLeft(t *testing.T) {
	t.Parallel()
	for _, r := range []Rate{guarded("250/1s"), rate("250/1s"), guarded("1000/1h")} {
		t.Run(fmt.Sprint(r), func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				l := b.limited(r)
				left := make([]*Reservation, 1000)
				for i := range left {
					left[i] = must(l.Reserve(b.Context(), 1, time.Minute))
					time.Sleep(left[i].Delay()) // the idiom of x/time/rate
				}
				if used := must(l.Inspect(b.Context())).Used; used < min(r.Permits, 1000) {
					t.Errorf("%d of the permits that were reserved count as used", used)
				}
				time.Sleep(2 * time.Second)
				calls := l.c.Stats().Calls
				time.Sleep(10 * time.Minute)
				calm := time.Since(b.begin).Truncate(time.Second)
				if n := l.c.Stats().Calls - calls; n > 0 {
					t.Errorf("%d calls in 10 idle minutes", n)
				}
				if n := l.c.core.Forget(); n > 0 {
					t.Error("the line is not forgotten")
				}
				check(t, left[250].Wait(b.Context())) // which was due later, with most limits
				check(t, left[0].Wait(b.Context()))
				left[1].Cancel()
				if left[1].Wait(b.Context()) == nil {
					t.Error("a reservation was waited for that had been cancelled")
				}
				check(t, l.c.Close())
				left[2].Cancel()
				if err := left[3].Wait(b.Context()); !errors.Is(err, ErrClosed) {
					t.Errorf("Wait after Close: %v", err)
				}
				if time.Since(b.begin).Truncate(time.Second) != calm {
					t.Error("it took time")
				}
			})
		})
	}
}

// An expiry that is taken back leaves each client its log for as long as it counts.
func TestExpiryTakenBackKeepsEveryLog(t *testing.T) {
	for name, back := range map[string]func(ctx context.Context, l *Limiter) (bool, error){
		"ClearExpire": func(ctx context.Context, l *Limiter) (bool, error) { return l.ClearExpire(ctx) },
		"UpdateRate":  func(ctx context.Context, l *Limiter) (bool, error) { return l.UpdateRate(ctx, perClient("10/2h")) },
	} {
		t.Run(name, func(t *testing.T) {
			forEachRedis(t, func(b *bench) {
				l, its := b.limiter(b.client()), b.limiter(b.client())
				done := func(ok bool, err error) {
					b.Helper()
					if !ok || err != nil {
						b.Fatal(ok, err)
					}
				}
				for range 2 { // a client that was not here since the second change has to forget what was before
					check(b, l.SetRate(b.Context(), perClient("10/1h")))
				}
				b.expectTry(l, 10, true)
				b.expectTry(its, 10, true)
				done(l.Expire(b.Context(), ms(200)))
				done(back(b.Context(), l))
				b.until(time.Since(b.begin) + ms(400))
				b.expectTry(l, 1, false)
				b.expectTry(its, 1, false)
				done(l.UpdateRate(b.Context(), perClient("20/1h")))
				b.expectTry(its, 11, false)
				b.expectTry(l, 11, false)
				b.expectTry(its, 10, true)
			})
		})
	}
}

// Reservations that are given back at once, however many, go to those who ask next.
func TestManyPlacesAreCancelled(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := guarded("1000/10s")
		r.Smooth = true // so that each reservation has a time of its own
		check(b, b.limiter(b.client()).SetRate(b.Context(), r))
		l := b.limiter(b.clientOf(&distant{Scripter: b.rdb, roundTrip: ms(2)}))
		ctx, cancel := context.WithCancel(b.Context())
		leaving, a := &arrivals{b: b}, &arrivals{b: b}
		for range 200 {
			leaving.wait(ctx, l, 1)
		}
		b.until(ms(100))
		cancel()
		time.Sleep(time.Microsecond) // until all of them have left
		for range 100 {
			a.wait(b.Context(), l, 1)
		}
		leaving.wg.Wait()
		a.wg.Wait()
		for i, w := range a.waits { // one each 10.05 ms
			if turn := ms(100) + time.Duration(i+1)*ms(101)/10; w.err != nil || w.at > turn+ms(100) {
				b.Fatalf("wait %d ended at %v with %v; its turn was at %v", i, w.at, w.err, turn)
			}
		}
	})
}

// Permits that are released, also in several steps, are offered within 100 ms and two round trips
// to all who wait, however many they are.
func TestManyWaitersMoveUp(t *testing.T) {
	const roundTrip, waiters = 10 * time.Millisecond, 300
	underFakeTime(t, func(b *bench) {
		near := b.limited(guarded("400/1h"))
		for range 400 { // each at a time of its own
			b.expectTry(near, 1, true)
			time.Sleep(ms(20))
		}
		l := b.limiter(b.clientOf(&distant{Scripter: b.rdb, roundTrip: roundTrip}))
		a := &arrivals{b: b}
		for range waiters {
			a.wait(b.Context(), l, 1)
		}
		time.Sleep(time.Second)
		for range 3 {
			check(b, near.Release(b.Context(), waiters/3))
			l.c.core.Released(l.name) // as it hears of it
			time.Sleep(ms(30))
		}
		by := time.Since(b.begin) - ms(30) + ms(100) + 2*roundTrip
		a.wg.Wait()
		late := 0
		for _, w := range a.waits {
			if w.err != nil || w.at > by {
				late++
			}
		}
		if late > 0 {
			b.Errorf("%d of %d waiters were not served by %v, the last at %v", late, waiters, by, a.waits[waiters-1].at)
		}
	})
}

// Clients that contend get equal parts of a limit, however many of their groups it is in.
func TestSharesAreOfClients(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		one, two := b.client(), b.client()
		check(b, b.limiter(one).SetRate(b.Context(), guarded("20/1s")))
		all := []Acquirer{b.limiter(one)}
		for i := range 3 {
			other := must(one.LimiterWithRate(fmt.Sprint(b.name(), i), guarded("1000/1s")))
			all = append(all, must(one.Group(b.limiter(one), other)))
		}
		ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
		defer cancel()
		var mine, its []time.Time
		var wg sync.WaitGroup
		wg.Go(func() { mine = used(ctx, 4*40, all...) })
		wg.Go(func() { its = used(ctx, 40, b.limiter(two)) })
		wg.Wait()
		t.Logf("%d and %d permits", len(mine), len(its))
		if most, least := len(mine), len(its); most > least*3/2 || least > most*3/2 {
			t.Errorf("%d permits for the client with groups, %d for the other", most, least)
		}
	})
}

// A client that comes while another has reserved the whole limit gets its part from the next
// interval on, in each interval.
func TestNewcomerHasItsShare(t *testing.T) {
	for _, limit := range []string{"20/1s", "100/5s"} {
		t.Run(limit, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				r := guarded(limit)
				check(b, b.limiter(b.client()).SetRate(b.Context(), r))
				ctx, cancel := context.WithTimeout(b.Context(), 12*r.Interval)
				defer cancel()
				began := time.Now()
				var wg sync.WaitGroup
				wg.Go(func() { used(ctx, 200, b.limiter(b.client())) })
				time.Sleep(r.Interval * 5 / 2)
				var its []time.Time
				wg.Go(func() { its = used(ctx, 200, b.limiter(b.client())) })
				wg.Wait()
				for i := 4; i < 11; i++ {
					from := began.Add(time.Duration(i) * (r.Interval + r.guard()))
					n := 0
					for _, at := range its {
						if !at.Before(from) && at.Before(from.Add(r.Interval+r.guard())) {
							n++
						}
					}
					if n < int(r.Permits)/4 {
						b.Errorf("%d of %d permits in interval %d", n, r.Permits, i)
					}
				}
			})
		})
	}
}

// A reservation that its caller claims late is exchanged, also for a limit without guard.
func TestLateClaimWithoutGuard(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("10/1s"))
		r := must(l.Reserve(b.Context(), 10, 0))
		time.Sleep(10 * time.Second)
		n := 0
		for b.try(l, 1) {
			n++
		}
		claimed := time.Now()
		check(b, r.Wait(b.Context()))
		if d := time.Since(claimed); d < time.Second {
			b.Errorf("%d permits in %v, of 10/1s", n+10, d)
		}
	})
}
