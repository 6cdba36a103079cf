package throttle

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A denial is a decision of Redis. If Redis has not decided by the end of the timeout, that is an
// error, even if it answers soon after, and what it grants then goes back.
func TestUndecidedIsNoDenial(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		check(b, b.limiter(b.client()).SetRate(b.Context(), guarded("1000/1h")))
		l := b.limiter(b.clientOf(b.away(ms(30), 0)))
		for range 10 {
			check(b, l.Acquire(b.Context(), 1))
		}
		for range 20 {
			ok, err := l.TryAcquireFor(b.Context(), 1, ms(10))
			if ok || !errors.Is(err, context.DeadlineExceeded) {
				b.Errorf("%v, %v: nothing was decided", ok, err)
			}
			time.Sleep(ms(100))
		}
		if ok, err := l.TryAcquireFor(b.Context(), 1, ms(200)); !ok || err != nil {
			b.Errorf("within 200ms: %v, %v", ok, err)
		}
		b.expectAvailable(l, 1000-11)
	})
}

// If so many processes ask for a limit that each asks only now and then, a request that Redis has
// put off is denied by the end of its timeout: others got what it might have got.
func TestOvertakenIsADenial(t *testing.T) {
	t.Parallel()
	roundTrips := []time.Duration{0, ms(10)}
	for _, roundTrip := range roundTrips[:quarter(2)] {
		t.Run(roundTrip.String(), func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				check(b, b.limiter(b.client()).SetRate(b.Context(), guarded("10/1s")))
				var served, late atomic.Int64
				var wg sync.WaitGroup
				for range 150 {
					l := b.limiter(b.clientOf(b.away(roundTrip, 0)))
					for range 3 {
						wg.Go(func() {
							for begin := time.Now(); time.Since(begin) < 20*time.Second; time.Sleep(ms(50)) {
								asked, timeout := time.Now(), ms(1500+rand.IntN(3000))
								ok, err := l.TryAcquireFor(b.Context(), 1, timeout)
								check(b, err)
								switch {
								case ok:
									served.Add(1)
								case time.Since(asked) == timeout:
									late.Add(1)
								}
							}
						})
					}
				}
				wg.Wait()
				if served.Load() < 190 || late.Load() == 0 {
					b.Errorf("%d were served, %d told no at the end of their timeouts", served.Load(), late.Load())
				}
			})
		})
	}
}

// Where Redis fails each call at once, whoever has a deadline hears of it, and of Redis.
func TestDeadlineWhileRedisRefuses(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limiter(b.clientOf(refusing{b.rdb}))
		ctx, cancel := context.WithTimeout(b.Context(), ms(300))
		defer cancel()
		for call, err := range map[string]error{"Acquire": l.Acquire(ctx, 1), "TryAcquireFor": second(l.TryAcquireFor(b.Context(), 1, ms(300)))} {
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: %v", call, err)
			}
		}
	})
}

// refusing is a Redis that fails each call at once.
type refusing struct{ redis.Scripter }

func (refusing) EvalSha(context.Context, string, []string, ...any) *redis.Cmd {
	return failed(io.ErrUnexpectedEOF)
}
