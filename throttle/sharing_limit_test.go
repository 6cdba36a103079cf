package throttle

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// sharers are limiters of one Client whose calls are shared, and those calls.
type sharers struct {
	*bench
	ls   []*Limiter
	sent [][]any // the shared calls, as they were sent
}

// shared runs a test with so many limiters of one rate, each of which has been used once.
func shared(t *testing.T, n int, r Rate, f func(s *sharers)) {
	underFakeTime(t, func(b *bench) {
		s := &sharers{bench: b, ls: many(b, b.client(), n, "many:%d", r)}
		h := new(sharedCalls)
		h.fault = func(_ context.Context, cmd *redis.Cmd, send func() error) error {
			h.mu.Lock()
			s.sent = append(s.sent, slices.Clone(cmd.Args()))
			h.mu.Unlock()
			return send()
		}
		b.rdb.AddHook(h)
		f(s)
		if h.n == 0 {
			b.Error("no call was shared")
		}
	})
}

// try asks for a permit of each limiter, all at once, so many times, and adds up how many it got
// of each.
func (s *sharers) try(had []int64, times int) {
	var wg sync.WaitGroup
	for range times {
		for i, l := range s.ls {
			wg.Go(func() {
				ok, err := l.TryAcquireFor(context.Background(), 1, ms(50))
				check(s, err)
				if ok {
					had[i]++
				}
			})
		}
		wg.Wait()
		time.Sleep(ms(120)) // so that the next call checks everything
	}
}

// expect checks what was got of each limiter, together with its first use.
func (s *sharers) expect(had []int64, want int64) {
	s.Helper()
	for i, n := range had {
		if n+1 != want {
			s.Errorf("%s: %d permits, want %d", s.ls[i].name, n+1, want)
		}
	}
}

// Calls for many limiters grant each limiter's whole limit, and no more.
func TestSharedCallsKeepTheLimit(t *testing.T) {
	shared(t, 64, guarded("6/1h"), func(s *sharers) {
		had := make([]int64, len(s.ls))
		s.try(had, 6)
		s.expect(had, 6)
	})
}

// Also when Redis's clock is set back, and forward to where it was.
func TestSharedCallsAtAClockSetBack(t *testing.T) {
	shared(t, 64, guarded("6/10s"), func(s *sharers) {
		clock := newSetClock(s.bench)
		had := make([]int64, len(s.ls))
		s.try(had, 2)
		clock.step(-time.Minute)
		s.try(had, 2)
		clock.step(time.Minute)
		s.try(had, 4)
		for i, n := range had {
			if n+1 > 6 {
				s.Errorf("%s: %d permits of 6", s.ls[i].name, n+1)
			}
		}
	})
}

// A repeat of a shared call charges nothing: neither beside a later call of the same key for
// replies, nor when all replies are forgotten.
func TestSharedCallIsRepeatedLate(t *testing.T) {
	for name, wait := range map[string]time.Duration{"after the next": 0, "after its time": 12 * time.Second} {
		t.Run(name, func(t *testing.T) {
			shared(t, 64, rate("1000/1h"), func(s *sharers) {
				had := make([]int64, len(s.ls))
				s.try(had, 3)
				time.Sleep(wait)
				for _, call := range s.sent {
					check(s, s.rdb.Do(s.Context(), call...).Err())
				}
				for _, l := range s.ls {
					s.expectAvailable(l, 1000-4)
				}
			})
		})
	}
}

// A log to which only shared calls add is merged like any other.
func TestSharedCallsKeepLogsShort(t *testing.T) {
	shared(t, 8, rate("1000000/1h"), func(s *sharers) {
		for range 1500 {
			for _, err := range atOnce(s.ls) {
				check(s, err)
			}
		}
		for _, l := range s.ls {
			if n := s.rdb.ZCard(s.Context(), l.keys()[2]).Val(); n > 1024 {
				s.Errorf("%s: %d entries", l.name, n)
			}
		}
	})
}

// Without its log nothing is known of the use of a limit.
func TestSharedCallsWithoutALog(t *testing.T) {
	shared(t, 64, rate("8/1h"), func(s *sharers) {
		s.try(make([]int64, len(s.ls)), 3)
		for _, l := range s.ls {
			check(s, s.rdb.Del(s.Context(), l.keys()[2]).Err())
		}
		had := make([]int64, len(s.ls))
		s.try(had, 8)
		s.expect(had, 8+1)
	})
}

// A pause stops those who ask next, also on the ways that check nothing else.
func TestPauseStopsTheNextCall(t *testing.T) {
	stops := func(b *bench, ls []*Limiter) {
		ask := func() (had int) {
			var n atomic.Int64
			var wg sync.WaitGroup
			for _, l := range ls {
				wg.Go(func() {
					if b.try(l, 1) {
						n.Add(1)
					}
				})
			}
			wg.Wait()
			return int(n.Load())
		}
		for range 3 { // the first of these checks everything
			if n := ask(); n != len(ls) {
				b.Fatalf("%d of %d had a permit", n, len(ls))
			}
		}
		other := b.client()
		for _, l := range ls {
			check(b, must(other.Limiter(l.name)).Pause(b.Context(), time.Minute))
		}
		if n := ask(); n > 0 {
			b.Errorf("%d of %d had a permit in the pause", n, len(ls))
		}
	}
	t.Run("alone", func(t *testing.T) {
		underFakeTime(t, func(b *bench) { stops(b, many(b, b.client(), 1, "alone:%d", rate("1000/1h"))) })
	})
	t.Run("shared", func(t *testing.T) {
		shared(t, 64, rate("1000/1h"), func(s *sharers) { stops(s.bench, s.ls) })
	})
}
