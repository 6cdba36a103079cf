package throttle

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// setClock makes a Redis in memory use a clock that is set to another time now and then, for all
// commands at once, including those with which a connection begins.
type setClock struct {
	away // how to dial
	mu   sync.Mutex
	by   time.Duration // by how much the clock is wrong
	slow float64       // by what part it runs slow
}

func newSetClock(b *bench) *setClock {
	s := &setClock{away: away{b: b}}
	b.rdb.AddHook(s)
	return s
}

func (s *setClock) step(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by += by
}

// set sets the clock for a command. A command that was under way when the clock was stepped does
// not set it back.
func (s *setClock) set() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b.fake.SetTime(time.Now().Add(s.by - time.Duration(s.slow*float64(time.Since(s.b.begin)))))
}

func (s *setClock) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.set()
		return next(ctx, cmd)
	}
}

func (s *setClock) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.set()
		return next(ctx, cmds)
	}
}

// usesOf are the times at which each client's callers were handed a permit.
type usesOf map[*Client][]time.Duration

// keepBusy makes two clients with 20 callers each use a limiter until length has passed since the
// beginning, and calls then meanwhile.
func keepBusy(b *bench, r Rate, length time.Duration, then func(*Limiter)) usesOf {
	first := b.limited(r)
	ctx, cancel := context.WithTimeout(b.Context(), length)
	defer cancel()
	var mu sync.Mutex
	uses := make(usesOf)
	var wg sync.WaitGroup
	for _, l := range []*Limiter{first, b.limiter(b.client())} {
		for range 20 {
			wg.Go(func() {
				for l.Acquire(ctx, 1) == nil {
					mu.Lock()
					uses[l.c] = append(uses[l.c], time.Since(b.begin))
					mu.Unlock()
				}
			})
		}
	}
	then(first)
	wg.Wait()
	return uses
}

// expect checks that no interval has more than the limit, and that the limit is used from one
// time on, up to the end.
func (uses usesOf) expect(b *bench, r Rate, from, to time.Duration) {
	b.Helper()
	quotas := make(map[*Client][]time.Duration) // nil: the shared quota
	for c, us := range uses {
		if r.Type == Overall {
			c = nil
		}
		quotas[c] = append(quotas[c], us...)
	}
	want := float64(r.Permits) * float64(to-from) / float64(r.Interval+r.Interval/100)
	for _, us := range quotas {
		slices.Sort(us)
		after := 0
		for i, u := range us {
			if n := int(r.Permits); i >= n && u-us[i-n] < r.Interval {
				b.Errorf("more than %d within %v, the last at %v", n, r.Interval, u)
			}
			if u > from {
				after++
			}
		}
		if float64(after) < 0.85*want {
			b.Errorf("%d permits were used from %v to %v, want about %.0f", after, from, to, want)
		}
	}
}

// When Redis's clock is set back, by much or by little, no window has more than the limit, and
// after two intervals everything is as before.
func TestRedisClockSetBack(t *testing.T) {
	t.Parallel()
	const step, length = 3300 * time.Millisecond, 12 * time.Second
	each, smooth := guarded("10/1s"), guarded("40/1s")
	each.Type, smooth.Smooth = PerClient, true
	for _, by := range []time.Duration{ms(2), ms(30), ms(500), ms(1500), ms(2500), 5 * time.Second, time.Hour, 365 * 24 * time.Hour} {
		for _, r := range []Rate{guarded("10/1s"), guarded("40/1s"), guarded("5/250ms"), each, smooth} {
			t.Run(by.String()+" "+r.String(), func(t *testing.T) {
				underFakeTime(t, func(b *bench) {
					clock := newSetClock(b)
					uses := keepBusy(b, r, length, func(*Limiter) {
						b.until(step)
						clock.step(-by)
					})
					uses.expect(b, r, step+2*time.Second, length)
				})
			})
		}
	}
}

// When the clock is set back, and then forward to where it was before it has run there, no window
// has more than the limit, and after two intervals everything is as before.
func TestRedisClockSetBackAndForward(t *testing.T) {
	t.Parallel()
	const step, length = 3300 * time.Millisecond, 14 * time.Second
	each, smooth, kept := guarded("10/1s"), guarded("40/1s"), guarded("20/1s")
	each.Type, smooth.Smooth, kept.KeepAlive = PerClient, true, 2*time.Hour
	for _, by := range []time.Duration{ms(2500), 8 * time.Second, time.Hour}[:quarter(3)] {
		for _, after := range []time.Duration{ms(1), ms(400), 2 * time.Second} {
			for _, r := range []Rate{guarded("10/1s"), guarded("5/250ms"), each, smooth, kept} {
				t.Run(by.String()+" for "+after.String()+" "+r.String(), func(t *testing.T) {
					underFakeTime(t, func(b *bench) {
						clock := newSetClock(b)
						uses := keepBusy(b, r, length, func(*Limiter) {
							b.until(step)
							clock.step(-by)
							b.until(step + after)
							clock.step(by)
						})
						uses.expect(b, r, step+after+3*time.Second, length)
					})
				})
			}
		}
	}
}

// A clock that is set forward, and a process that was idle for long, stop nobody.
func TestRedisClockSetForward(t *testing.T) {
	t.Parallel()
	smooth, kept := guarded("40/1s"), guarded("10/1s")
	smooth.Smooth, kept.KeepAlive = true, 12*time.Hour
	for _, r := range []Rate{guarded("10/1s"), smooth, kept} {
		for _, idle := range []time.Duration{0, 90 * time.Second, 6 * time.Hour} {
			for _, by := range []time.Duration{0, time.Minute, time.Hour} {
				t.Run(r.String()+" after "+idle.String()+" by "+by.String(), func(t *testing.T) {
					underFakeTime(t, func(b *bench) {
						clock := newSetClock(b)
						l := b.limited(r)
						ctx, cancel := context.WithTimeout(b.Context(), 12*time.Hour)
						defer cancel()
						for range 12 {
							check(b, l.Acquire(ctx, 1))
						}
						time.Sleep(idle)
						clock.step(by)
						begin := time.Now()
						check(b, l.Release(ctx, 1))
						for range 5 {
							check(b, l.Acquire(ctx, 1))
						}
						if took := time.Since(begin); took > 3*time.Second {
							b.Errorf("five permits took %v", took)
						}
						if calls := l.c.Stats().Calls; calls > 200 {
							b.Errorf("%d calls", calls)
						}
					})
				})
			}
		}
	}
}

// A pause that began while the clock was set back lasts, however the clock is set then.
func TestPauseWhileTheClockIsBack(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		clock := newSetClock(b)
		l := b.limited(guarded("10/1s"))
		check(b, l.Acquire(b.Context(), 1))
		clock.step(-time.Hour)
		check(b, l.Acquire(b.Context(), 1))
		check(b, l.Pause(b.Context(), 10*time.Minute))
		clock.step(-5 * time.Second)
		begin := time.Now()
		check(b, l.Acquire(b.Context(), 1))
		if took := time.Since(begin); took < 9*time.Minute || took > 11*time.Minute {
			b.Errorf("it was paused for %v of 10m", took)
		}
	})
}

// A pause does not become longer when Redis's clock is set back.
func TestRedisClockSetBackInAPause(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		clock := newSetClock(b)
		r := guarded("10/1s")
		keepBusy(b, r, 17*time.Second, func(l *Limiter) {
			b.until(3 * time.Second)
			check(b, l.Pause(b.Context(), 3*time.Second))
			b.until(4 * time.Second)
			clock.step(-time.Hour)
		}).expect(b, r, 7500*time.Millisecond, 17*time.Second)
	})
}

// guarded is a rate with the default guard.
func guarded(s string) Rate {
	r := rate(s)
	r.Guard = 0
	return r
}

// A clock that was set back and has run on was not set forward: a client that is new to a limiter
// gets what is left of it.
func TestClockSetBackStopsNobodyNew(t *testing.T) {
	for name, r := range map[string]Rate{"keep": kept(guarded("100/1h"), 2*time.Hour), "per client": func() Rate { r := guarded("100/1h"); r.Type = PerClient; return r }(), "plain": guarded("100/1h")} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				clock := newSetClock(b)
				first := must(b.client().LimiterWithRate("account", r))
				b.expectTry(first, 1, true)
				time.Sleep(300 * time.Millisecond)
				clock.step(-2 * time.Second)
				b.expectTry(first, 1, true)
				time.Sleep(30 * time.Minute)
				b.expectTry(first, 1, true)
				second := must(b.client().LimiterWithRate("account", r))
				begin := time.Now()
				ok, err := second.TryAcquire(b.Context(), 1)
				if !ok || err != nil {
					b.Errorf("%v %v", ok, err)
				}
				check(b, second.Acquire(b.Context(), 1))
				if took := time.Since(begin); took > 10*time.Second {
					b.Errorf("3 of 100/1h were used, and one more took %v", took)
				}
			})
		})
	}
}

// Nor does it stop clients that a change of the configuration reaches after it.
func TestClockSetBackAndChangeStopNobody(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		clock := newSetClock(b)
		r := kept(guarded("100/1h"), 2*time.Hour)
		first := must(b.client().LimiterWithRate("account", r))
		second := must(b.client().LimiterWithRate("account", r))
		b.expectTry(first, 1, true)
		time.Sleep(300 * time.Millisecond)
		clock.step(-2 * time.Second)
		b.expectTry(first, 1, true)
		b.expectTry(second, 1, true)
		for range 30 {
			time.Sleep(time.Minute)
			b.expectTry(first, 1, true)
			b.expectTry(second, 1, true)
		}
		check(b, first.Pause(b.Context(), ms(10))) // the API said Retry-After
		time.Sleep(time.Second)
		begin := time.Now()
		check(b, first.Acquire(b.Context(), 1))
		check(b, second.Acquire(b.Context(), 1))
		if took := time.Since(begin); took > 10*time.Second {
			b.Errorf("64 of 100/1h were used, and one more took %v", took)
		}
	})
}

// A clock that was ahead for a while costs no more than the step back.
func TestRedisClockSetForwardAndBack(t *testing.T) {
	for _, r := range []Rate{guarded("10/1s"), kept(guarded("100/1h"), 2*time.Hour), guarded("100/1h")} {
		for _, by := range []time.Duration{2 * time.Second, time.Minute, 2 * time.Hour} {
			t.Run(r.String()+" "+r.KeepAlive.String()+" "+by.String(), func(t *testing.T) {
				underFakeTime(t, func(b *bench) {
					clock := newSetClock(b)
					l := must(b.client().LimiterWithRate("account", r))
					b.expectTry(l, 1, true)
					time.Sleep(time.Second)
					clock.step(by)
					check(b, l.Acquire(b.Context(), 1))
					time.Sleep(3 * time.Second)
					clock.step(-by)
					begin := time.Now()
					check(b, l.Acquire(b.Context(), 1))
					check(b, must(b.client().LimiterWithRate("account", r)).Acquire(b.Context(), 1))
					check(b, l.Acquire(b.Context(), 1))
					if took := time.Since(begin); took > 4*time.Second {
						b.Errorf("one more took %v", took)
					}
					for range 10 {
						time.Sleep(by / 8)
						begin := time.Now()
						check(b, must(b.client().LimiterWithRate("account", r)).Acquire(b.Context(), 1))
						if took := time.Since(begin); took > 4*time.Second {
							b.Errorf("after %v one more took %v", time.Since(b.begin), took)
							return
						}
					}
				})
			})
		}
	}
}

// What Redis's clock has shown is also known for a limiter whose line was forgotten: a clock that
// is set back by more than an interval gives nothing twice.
func TestForgottenLineKnowsTheClock(t *testing.T) {
	for _, by := range []time.Duration{ms(500), ms(1100), ms(1500), ms(2500), 5 * time.Second} {
		t.Run(by.String(), func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				clock := newSetClock(b)
				r := guarded("10/1s")
				first := b.limited(r)
				time.Sleep(10 * time.Second)
				begin := time.Now()
				n := 0
				for b.try(first, 1) {
					n++
				}
				testkit.Eventually(b, 3*time.Second, "the line is forgotten", func() bool { return first.c.core.Forget() == 0 })
				clock.step(-by)
				for b.try(first, 1) {
					n++
				}
				if n > 10 {
					b.Errorf("%d permits within %v", n, time.Since(begin))
				}
			})
		})
	}
}

// Perhaps nobody knows by how much the clock was set back: the clients that were there have left.
// A client that sees it set forward knows by how much that was.
func TestClockSetForwardByMoreThanWasKnown(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		clock := newSetClock(b)
		b.expectTry(b.limited(guarded("10/1s")), 1, true)
		time.Sleep(10 * time.Second)
		clock.step(-time.Hour)
		later := b.limiter(b.client())
		time.Sleep(2 * time.Second)
		for b.try(later, 1) { // all ten
		}
		time.Sleep(ms(100))
		clock.step(time.Hour)
		b.expectTry(later, 1, false)
	})
}
