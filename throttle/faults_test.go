package throttle

import (
	"context"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// faulty is a Scripter whose calls go wrong as fault says; calls are counted from 1.
type faulty struct {
	redis.Scripter
	calls atomic.Int64
	fault func(call int64, send func() *redis.Cmd) *redis.Cmd
}

func (f *faulty) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return f.fault(f.calls.Add(1), func() *redis.Cmd { return f.Scripter.EvalSha(ctx, sha, keys, args...) })
}

func failed(err error) *redis.Cmd { return redis.NewCmdResult(nil, err) }

// during makes some calls go wrong: those from first to last, counted after the limiter was set
// up.
func during(first, last int64, wrong func(send func() *redis.Cmd) *redis.Cmd) func(int64, func() *redis.Cmd) *redis.Cmd {
	return func(call int64, send func() *redis.Cmd) *redis.Cmd {
		if call >= first && call <= last {
			return wrong(send)
		}
		return send()
	}
}

func refuse(func() *redis.Cmd) *redis.Cmd { return failed(io.ErrUnexpectedEOF) }

func loseReply(send func() *redis.Cmd) *redis.Cmd {
	send()
	return failed(io.ErrUnexpectedEOF)
}

func slow(d time.Duration) func(func() *redis.Cmd) *redis.Cmd {
	return func(send func() *redis.Cmd) *redis.Cmd {
		cmd := send()
		time.Sleep(d)
		return cmd
	}
}

// troubled is a limiter, set up, of a Client whose calls go wrong from then on.
func (b *bench) troubled(r Rate, fault func(int64, func() *redis.Cmd) *redis.Cmd) *Limiter {
	b.Helper()
	b.loadScripts() // so that each is one call
	time.Sleep(time.Millisecond)
	check(b, b.limiter(b.client()).SetRate(b.Context(), r))
	f := &faulty{Scripter: b.rdb, fault: func(_ int64, send func() *redis.Cmd) *redis.Cmd { return send() }}
	l := b.limiter(b.clientOf(f))
	_, err := l.Inspect(b.Context()) // it is not its first call that goes wrong
	check(b, err)
	f.fault = fault
	f.calls.Store(0)
	b.begin = time.Now()
	return l
}

// The first call of a Client may take long, since it connects. No permit is too old because of
// that.
func TestFirstCallMayTakeLong(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := rate("10/1s")
		r.Guard = ms(10)
		l := b.limited(r)
		b.expectTry(l, 1, true) // Redis knows the script
		f := &faulty{Scripter: b.rdb, fault: during(1, 1, slow(ms(40)))}
		fresh := b.limiter(b.clientOf(f))
		a := &arrivals{b: b}
		for range 10 {
			a.wait(b.Context(), fresh, 1)
		}
		a.expect(append(slices.Repeat([]time.Duration{ms(40)}, 9), ms(1010))...)
		if s := fresh.c.Stats(); s.Stale != 0 {
			b.Errorf("%+v", s)
		}
	})
}

// An error that will not go away is returned even if it is the first answer.
func TestFirstAnswerIsWrong(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limiter(b.client())
		check(b, b.rdb.Set(b.Context(), l.name, "else", 0).Err())
		b.expectError(l.Acquire(b.Context(), 1), ErrWrongType, l.name)
	})
}

func TestAcquireWaitsTroubleOut(t *testing.T) {
	for name, reply := range map[string]error{
		"broken connection": io.ErrUnexpectedEOF,
		"loading":           redisError("LOADING Redis is loading the dataset in memory"),
	} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				l := b.troubled(rate("5/5s"), during(1, 5, func(func() *redis.Cmd) *redis.Cmd { return failed(reply) }))
				check(b, l.Acquire(b.Context(), 2))
				b.expectAvailable(l, 3)
				if s := l.c.Stats(); s.Errors != 5 || s.Grants != 2 {
					b.Errorf("%+v", s)
				}
			})
		})
	}
}

// redisError is an error reply.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

func TestTryAcquireReturnsTrouble(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		mends := time.Now().Add(ms(1100))
		l := b.troubled(rate("5/5s"), during(1, 1<<30, func(send func() *redis.Cmd) *redis.Cmd {
			if time.Now().After(mends) {
				return send()
			}
			return refuse(send)
		}))
		_, err := l.TryAcquire(b.Context(), 1)
		b.expectError(err, io.ErrUnexpectedEOF, l.name)
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		err = l.Acquire(ctx, 1)
		b.expectError(err, io.ErrUnexpectedEOF, l.name)
		if took := time.Since(b.begin); took > ms(1100) {
			b.Errorf("returned after %v", took)
		}
	})
}

func TestLostRepliesChargeOnce(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.troubled(rate("5/5s"), during(1, 4, loseReply))
		check(b, l.Acquire(b.Context(), 2))
		b.expectAvailable(l, 3)
	})
}

// What a call that was given up still brings is given back.
func TestLostReplyOfTryAcquireIsGivenBack(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.troubled(rate("5/5s"), during(1, 2, loseReply))
		_, err := l.TryAcquire(b.Context(), 2)
		b.expectError(err, io.ErrUnexpectedEOF, l.name)
		b.until(ms(100))
		b.expectAvailable(l, 5)
	})
}

func TestStalePermitIsExchanged(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := rate("10/1s")
		r.Guard = ms(20)
		l := b.troubled(r, during(4, 4, slow(ms(50))))
		for range 4 {
			check(b, l.Acquire(b.Context(), 1))
		}
		if s := l.c.Stats(); s.Stale != 1 || s.Late != 0 || time.Since(b.begin) != ms(50) {
			b.Errorf("%+v after %v", s, time.Since(b.begin))
		}
		b.expectAvailable(l, 6)
	})
}

// If every round trip takes longer than half the guard, no permit can be known to be fresh: it
// passes, and is counted. But not before a second has shown that the way is long, and not that a
// process is slow to start; and not if it is too old in any case.
func TestLatePermitsPass(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := rate("100/1s")
		r.Guard = ms(20)
		l := b.troubled(r, during(1, 1<<30, slow(ms(30))))
		check(b, l.Acquire(b.Context(), 1))
		if s := l.c.Stats(); s.Late != 1 || time.Since(b.begin) > 6*ms(30) {
			b.Errorf("the first permit: %+v after %v", s, time.Since(b.begin))
		}
		for range 9 {
			check(b, l.Acquire(b.Context(), 1))
		}
		if s := l.c.Stats(); s.Late != 10 {
			b.Errorf("%+v", s)
		}
		res, err := l.Reserve(b.Context(), 1, 0)
		check(b, err)
		before := l.c.Stats().Stale
		time.Sleep(ms(11))
		check(b, res.Wait(b.Context()))
		if s := l.c.Stats(); s.Stale != before+1 || s.Late != 11 {
			b.Errorf("a permit of half a guard and a round trip ago: %+v, %d stale before", s, before)
		}
	})
}

// A Redis that is so far away that nothing known of it is fresh still serves.
func TestFarRedisServes(t *testing.T) {
	for _, roundTrip := range []time.Duration{90 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond} {
		underFakeTime(t, func(b *bench) {
			l := b.troubled(rate("10/1s"), during(1, 1<<30, slow(roundTrip)))
			a := &arrivals{b: b}
			for range 30 {
				a.wait(b.Context(), l, 1)
			}
			a.wg.Wait()
			var last time.Duration
			for _, w := range a.waits {
				check(b, w.err)
				last = max(last, w.at)
			}
			if most := 2*time.Second + 5*roundTrip; last > most {
				b.Errorf("round trips of %v: the last of 30 permits came at %v, want it by %v", roundTrip, last, most)
			}
		})
	}
}

// A reply that no version of the script gives is an error, not a grant.
func TestForeignReplyIsAnError(t *testing.T) {
	for _, reply := range []any{nil, int64(1), "", "0", "1 0 1 x", []any{"1"}} {
		underFakeTime(t, func(b *bench) {
			l := b.troubled(rate("5/5s"), during(1, 1<<30, func(func() *redis.Cmd) *redis.Cmd { return redis.NewCmdResult(reply, nil) }))
			_, err := l.TryAcquire(b.Context(), 1)
			b.expectError(err, script.ErrReply, l.name)
		})
	}
}

// If the reply for a permit was lost, and Redis tells of it again after the limit was paused, the
// permit is not handed out in the pause, however long the guard lets it be fresh.
func TestLostReplyIsNotBelievedAfterAChange(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := rate("10/1m")
		r.Guard = 15 * time.Second
		const back, paused, length = time.Second, 500 * time.Millisecond, 5 * time.Second
		l := b.troubled(r, func(call int64, send func() *redis.Cmd) *redis.Cmd {
			switch {
			case call == 1:
				return loseReply(send)
			case time.Since(b.begin) < back:
				return refuse(send)
			}
			return send()
		})
		other := b.limiter(b.client())
		time.AfterFunc(paused, func() { check(b, other.Pause(b.Context(), length)) })
		check(b, l.Acquire(b.Context(), 1))
		if d := time.Since(b.begin); d < paused+length {
			b.Errorf("a permit after %v, in a pause from %v to %v", d, paused, paused+length)
		}
	})
}
