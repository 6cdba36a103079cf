package throttle

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// setClock makes a Redis in memory go by a clock that is set to another time now and then.
type setClock struct {
	redis.Hook
	b   *bench
	mu  sync.Mutex
	off time.Duration
}

func newSetClock(b *bench) *setClock {
	s := &setClock{Hook: away{b, 0}, b: b}
	b.rdb.AddHook(s)
	return s
}

func (s *setClock) step(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off += by
}

func (s *setClock) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.mu.Lock()
		off := s.off
		s.mu.Unlock()
		return away{s.b, off}.ProcessHook(next)(ctx, cmd)
	}
}

// usesOf are the times at which each client's callers were handed a permit.
type usesOf map[*Client][]time.Duration

// keepBusy has two clients with 20 callers each use a limiter until length has
// passed since the beginning, and lets then happen meanwhile.
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

// expect checks that no interval has more than the limit, and that from a time
// on it is used, up to the end.
func (uses usesOf) expect(b *bench, r Rate, from, to time.Duration) {
	b.Helper()
	quotas := make(map[*Client][]time.Duration) // nil: the shared one
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

// When Redis's clock is set back, by much or by little, no window has more than
// the limit, and after two intervals all is as before.
func TestRedisClockSetBack(t *testing.T) {
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

// When the clock is set back and, before it has come there by itself, forward to
// where it was, no window has more than the limit, and after two intervals all is
// as before.
func TestRedisClockSetBackAndForward(t *testing.T) {
	const step, length = 3300 * time.Millisecond, 14 * time.Second
	each, smooth, kept := guarded("10/1s"), guarded("40/1s"), guarded("20/1s")
	each.Type, smooth.Smooth, kept.KeepAlive = PerClient, true, 2*time.Hour
	for _, by := range []time.Duration{ms(2500), 8 * time.Second, time.Hour} {
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
