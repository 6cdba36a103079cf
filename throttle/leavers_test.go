package throttle

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// What becomes of permits that were given back, or came too late: they are for those who wait.

// A permit that came too late is another's, if there is no room for its caller any more: of a quota of hours none is lost,
// while others wait for it.
func TestLatePermitOfALongIntervalIsNotLost(t *testing.T) {
	t.Parallel()
	for _, r := range []string{"20/1h", "7/1m", "1000/24h"} {
		for _, who := range []string{"another process", "this process", "this process, per client", "and it gives up", "and it cancels"} { // who waits
			t.Run(r+", "+who, func(t *testing.T) {
				underFakeTime(t, func(b *bench) {
					r := guarded(r)
					if who == "this process, per client" {
						r.Type = PerClient
					}
					l := b.limited(r)
					waits := l
					if who != "this process" && r.Type != PerClient {
						waits = b.limiter(b.client())
					}
					first := must(l.Reserve(b.Context(), 1, 0))
					time.Sleep(ms(1))
					for range must(l.Config(b.Context())).Permits - 1 {
						check(b, l.Acquire(b.Context(), 1))
					}
					ctx, cancel := context.WithCancel(b.Context())
					defer cancel()
					a := &arrivals{b: b}
					for range 5 {
						a.wait(ctx, waits, 1)
					}
					time.Sleep(ms(200))
					var used atomic.Bool
					switch who {
					case "and it gives up":
						over, cancel := context.WithCancel(ctx)
						cancel()
						a.wg.Go(func() { used.Store(first.Wait(over) == nil) })
					case "and it cancels":
						first.Cancel()
					default:
						a.wg.Go(func() { used.Store(first.Wait(ctx) == nil) })
					}
					time.Sleep(2 * time.Second)
					served := a.served()
					if used.Load() {
						served++
					}
					if served != 1 {
						b.Errorf("%d of those who wait were served, want 1", served)
					}
					cancel()
					a.wg.Wait()
				})
			})
		}
	}
}

// Those who wait move up when one before them leaves, in the order in which they came, however long the interval is.
func TestWhoLeavesIsFollowedByTheNext(t *testing.T) {
	t.Parallel()
	for _, r := range []string{"1/5m", "3/5m", "1/10s", "1/1s"} {
		for _, other := range []bool{false, true} { // whether those who wait do so in another process
			t.Run(fmt.Sprintf("%s, another process %v", r, other), func(t *testing.T) {
				underFakeTime(t, func(b *bench) {
					l := b.limited(guarded(r))
					waits := l
					if other {
						waits = b.limiter(b.client())
					}
					c := must(l.Config(b.Context()))
					for range c.Permits {
						check(b, l.Acquire(b.Context(), 1))
					}
					ctx, leave := context.WithCancel(b.Context())
					before := &arrivals{b: b}
					for range c.Permits {
						before.wait(ctx, l, 1)
					}
					a := &arrivals{b: b}
					for range 2 * c.Permits {
						a.wait(b.Context(), waits, 1)
					}
					time.Sleep(ms(300))
					leave()
					a.wg.Wait()
					before.wg.Wait()
					for i, w := range a.waits {
						span := c.Interval + c.Guard
						if round := time.Duration(1 + int64(i)/c.Permits); w.err != nil || w.at < round*span || w.at > round*span+ms(150) {
							b.Errorf("the wait with the number %d ended after %v, %v, want about %v", i, w.at, w.err, round*span)
						}
					}
				})
			})
		}
	}
}

// Whoever leaves while Redis answers is followed, too, by those who have asked in the same call.
func TestWhoLeavesDuringACallIsFollowed(t *testing.T) {
	t.Parallel()
	step := 100 * time.Millisecond / time.Duration(quarter(25))
	for after := 2 * time.Millisecond; after < 100*time.Millisecond; after += step { // the call of both is under way at one of these times
		t.Run(after.String(), func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				r := guarded("1/1m")
				r.Type = PerClient // of which nothing is announced
				check(b, b.limiter(b.client()).SetRate(b.Context(), r))
				l := b.limiter(b.clientOf(&distant{Scripter: b.rdb, roundTrip: ms(20)})) // which cannot listen to anything
				check(b, l.Acquire(b.Context(), 1))
				begin := time.Since(b.begin)
				ctx, leave := context.WithCancel(b.Context())
				a, leaver := &arrivals{b: b}, &arrivals{b: b}
				a.wait(b.Context(), l, 1) // its call is under way when the others come
				leaver.wait(ctx, l, 1)
				a.wait(b.Context(), l, 1)
				time.Sleep(after)
				leave()
				leaver.wg.Wait()
				a.wg.Wait()
				span := time.Minute + ms(50)
				for i, w := range a.waits {
					if late := w.at - begin - time.Duration(i+1)*span; w.err != nil || late > ms(100) {
						b.Errorf("the wait with the number %d ended %v later than it must; %v", i, late, w.err)
					}
				}
			})
		})
	}
}

// A quota of hours beside a limit of seconds is a quota of hours, however long ago the permit stopped to count in the other.
func TestLatePermitOfAGroupIsNotLost(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{ms(200), 2 * time.Second} {
		for _, other := range []bool{false, true} { // whether those who wait do so in another process
			t.Run(fmt.Sprintf("%v, another process %v", late, other), func(t *testing.T) {
				underFakeTime(t, func(b *bench) {
					second := b.limited(guarded("1000/1s")).Name()
					c := b.client()
					group := func(c *Client) *Group { return must(c.Group(must(c.Limiter(second)), must(c.Limiter("hour")))) }
					check(b, must(c.Limiter("hour")).SetRate(b.Context(), guarded("20/1h")))
					mine := group(c)
					waits := mine
					if other {
						waits = group(b.client())
					}
					first := must(mine.Reserve(b.Context(), 1, 0))
					time.Sleep(ms(1))
					for range 19 {
						check(b, mine.Acquire(b.Context(), 1))
					}
					ctx, cancel := context.WithCancel(b.Context())
					a := &arrivals{b: b}
					for range 5 {
						a.wait(ctx, waits, 1)
					}
					time.Sleep(late)
					first.Cancel()
					time.Sleep(2 * time.Second)
					if served := a.served(); served != 1 {
						b.Errorf("%d of those who wait were served, want 1", served)
					}
					cancel()
					a.wg.Wait()
				})
			})
		}
	}
}

// Whoever is late keeps its turn: if its permits can be had now, it has them, and not those who came after it.
func TestLateCallerKeepsItsTurn(t *testing.T) {
	t.Parallel()
	for _, kind := range []RateType{Overall, PerClient} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				r := guarded("20/1h")
				r.Type = kind
				l := b.limited(r)
				for range 19 {
					check(b, l.Acquire(b.Context(), 1))
					time.Sleep(ms(1))
				}
				last := must(l.Reserve(b.Context(), 1, 0))
				ctx, cancel := context.WithCancel(b.Context())
				a := &arrivals{b: b}
				for range 5 {
					a.wait(ctx, l, 1)
				}
				time.Sleep(ms(200))
				soon, end := context.WithTimeout(ctx, time.Second)
				defer end()
				if err := last.Wait(soon); err != nil || a.served() > 0 {
					b.Errorf("%d of those who came later were served; %v", a.served(), err)
				}
				cancel()
				a.wg.Wait()
			})
		})
	}
}

// Whoever is late has the next turn in its process: who came after it, and could not have its permits when the late one came,
// has them later.
func TestLateCallerIsNextInTurn(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"1/1s by 108ms", "20/1s by 108ms", "100/1s smooth by 101ms", "100/1s smooth by 104ms", "100/1s smooth by 107ms", "100/1s smooth by 110ms"} {
		t.Run(of, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				limit, by, _ := strings.Cut(of, " by ")
				r := b.parsed(limit)
				l := b.limited(r)
				for range r.Permits {
					check(b, l.Acquire(b.Context(), 1))
				}
				late := must(l.Reserve(b.Context(), 1, time.Hour))
				a := &arrivals{b: b}
				for range 3 * r.Permits {
					a.wait(b.Context(), l, 1)
				}
				time.Sleep(late.Delay() + must(time.ParseDuration(by)))
				came := time.Since(b.begin)
				check(b, late.Wait(b.Context()))
				had := time.Since(b.begin)
				a.wg.Wait()
				for i, w := range a.waits {
					if w.err != nil || i > 0 && w.at < a.waits[i-1].at || w.at > came+ms(1) && w.at < had.Truncate(ms(1)) {
						b.Errorf("the late one had its permit at %v; number %d of %d after it at %v, %v", had, i, len(a.waits), w.at, w.err)
					}
				}
			})
		})
	}
}

// A process that stands still for a while keeps the order in which it was asked: of those who are late each has the next turn,
// and who had the later times waits longest. Whoever is late has its permits with a deadline, too, if the next turn is in time.
func TestLateCallersKeepTheirOrder(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"20/1s", "100/1s smooth"} {
		for _, late := range []int{1, 2, 7} {
			for _, deadline := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d late, deadline %v", limit, late, deadline), func(t *testing.T) {
					underFakeTime(t, func(b *bench) {
						r := b.parsed(limit)
						l := b.limited(r)
						for range r.Permits {
							check(b, l.Acquire(b.Context(), 1))
						}
						var of []*Reservation
						for range late {
							of = append(of, must(l.Reserve(b.Context(), 1, time.Hour)))
						}
						a := &arrivals{b: b}
						for range 3 * r.Permits {
							a.wait(b.Context(), l, 1)
						}
						time.Sleep(of[late-1].Delay() + ms(20))
						came := time.Since(b.begin)
						ctx := b.Context()
						if deadline {
							var cancel context.CancelFunc
							ctx, cancel = context.WithTimeout(ctx, r.Interval+r.Interval/4)
							defer cancel()
						}
						first := &arrivals{b: b}
						for _, r := range of {
							first.waits = append(first.waits, &arrival{})
							first.wg.Go(func() {
								w := first.waits[slices.Index(of, r)]
								w.err = r.Wait(ctx)
								w.at = time.Since(b.begin)
							})
							synctest.Wait()
						}
						first.wg.Wait()
						a.wg.Wait()
						last := time.Duration(0)
						for i, w := range append(first.waits, a.waits...) {
							if w.err != nil || w.at > came+ms(1) && w.at.Truncate(ms(1)) < last {
								b.Errorf("number %d had its permit at %v, %v; one before it at %v", i, w.at, w.err, last)
							}
							if w.at > came+ms(1) {
								last = max(last, w.at.Truncate(ms(1)))
							}
						}
						if n := l.c.Stats().Stale; n != int64(late) {
							b.Errorf("%d permits came too late, want %d", n, late)
						}
					})
				})
			}
		}
	}
}

// Whoever gets an earlier time for somebody else who is late hears of it at once, and is not late again.
func TestLateCallerHearsOfAnEarlierTurn(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(b.parsed("10/1s smooth")) // every 101 ms
		check(b, l.Acquire(b.Context(), 1))
		var of []*Reservation // two are late; the others are not waited for at first
		for range 8 {
			of = append(of, must(l.Reserve(b.Context(), 1, time.Hour)))
		}
		a := &arrivals{b: b}
		for range 5 {
			a.wait(b.Context(), l, 1)
		}
		var wg sync.WaitGroup
		at := make([]time.Duration, len(of))
		wait := func(i int) {
			wg.Go(func() {
				check(b, of[i].Wait(b.Context()))
				at[i] = time.Since(b.begin)
			})
			synctest.Wait()
		}
		time.Sleep(of[0].Delay() + ms(8))
		wait(0)
		for i := 2; i < len(of); i++ {
			wait(i)
		}
		time.Sleep(of[1].Delay() + ms(8))
		wait(1)
		wg.Wait()
		a.wg.Wait()
		if n := l.c.Stats().Stale; n != 2 || !slices.IsSorted(at) {
			b.Errorf("%d permits came too late, want 2; permits were had at %v, want them in turn", n, at)
		}
	})
}

// Whoever is late makes nobody else late for a deadline, nor gives somebody another time who was told one.
func TestLateCallerKeepsOthersInTime(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := guarded("100/1s")
		r.Smooth = true
		l := b.limited(r)
		check(b, l.Acquire(b.Context(), 1))
		late := must(l.Reserve(b.Context(), 1, time.Hour))
		due := late.Delay()
		told := must(l.Reserve(b.Context(), 1, time.Hour))
		ctx, cancel := context.WithTimeout(b.Context(), told.Delay()+ms(15))
		defer cancel()
		a := &arrivals{b: b}
		a.wait(ctx, l, 1)
		for range 10 {
			a.wait(b.Context(), l, 1)
		}
		time.Sleep(due + ms(8))
		at := told.Delay()
		var wg sync.WaitGroup
		wg.Go(func() { check(b, late.Wait(b.Context())) })
		synctest.Wait()
		if d := told.Delay(); d != at {
			b.Errorf("the reservation that nobody waits for yet is due in %v, was in %v", d, at)
		}
		check(b, told.Wait(b.Context()))
		wg.Wait()
		a.wg.Wait()
		if err := a.waits[0].err; err != nil {
			b.Errorf("with a deadline: %v", err)
		}
	})
}

// Whoever leaves while Redis does not answer costs nobody else the reservation: however long that lasts, they have the
// times that they had. (Of what was given back just before, and is not answered for 10 s, nobody knows: it counts as used.)
func TestWhoLeavesInAnOutageCostsOthersNothing(t *testing.T) {
	t.Parallel()
	for _, outage := range []time.Duration{time.Second, 30 * time.Second} {
		t.Run(outage.String(), func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				var away atomic.Bool
				l := b.troubled(guarded("3/2m"), func(_ int64, send func() *redis.Cmd) *redis.Cmd {
					if away.Load() {
						return failed(io.ErrUnexpectedEOF)
					}
					return send()
				})
				for range 3 {
					check(b, l.Acquire(b.Context(), 1))
				}
				ctx, leave := context.WithCancel(b.Context())
				a := &arrivals{b: b}
				for range 2 {
					a.wait(b.Context(), l, 1)
				}
				leaver := &arrivals{b: b}
				leaver.wait(ctx, l, 1)
				a.wait(b.Context(), l, 1)
				time.Sleep(ms(500))
				away.Store(true)
				time.Sleep(ms(500))
				leave()
				leaver.wg.Wait()
				time.Sleep(outage)
				away.Store(false)
				a.wg.Wait()
				span := 2*time.Minute + ms(50)
				for i, latest := range []time.Duration{span, span, 2 * span} {
					if w := a.waits[i]; w.err != nil || w.at < span || w.at > latest+time.Second {
						b.Errorf("the wait with the number %d ended after %v, %v, want %v at the latest", i, w.at, w.err, latest)
					}
				}
			})
		})
	}
}

// To ask when permits would be due, and to leave them, is no news for those who wait: nobody has reserved later ones.
func TestProbesTellNobody(t *testing.T) {
	t.Parallel()
	for _, r := range []string{"5/1m", "1/1h", "8/10m"} {
		t.Run(r, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				l, other := b.limited(guarded(r)), b.client()
				probe := b.limiter(other)
				for range must(l.Config(b.Context())).Permits {
					check(b, l.Acquire(b.Context(), 1))
				}
				ctx, cancel := context.WithCancel(b.Context())
				a := &arrivals{b: b}
				a.wait(ctx, l, 1)
				calls := func(probes bool) int64 { // of those who wait, in 4 s
					before := l.c.Stats().Calls
					for range 20 {
						if probes {
							must(probe.Reserve(b.Context(), 1, 2*time.Hour)).Cancel()
						}
						time.Sleep(ms(200))
					}
					return l.c.Stats().Calls - before
				}
				calls(true)
				if with, without := calls(true), calls(false); with > without+1 {
					b.Errorf("20 probes cost those who wait %d calls, and as much time without them %d", with, without)
				}
				cancel()
				a.wg.Wait()
			})
		})
	}
}
