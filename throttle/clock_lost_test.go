package throttle

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// losing is a Scripter that loses requests, or the next reply of acquire.lua.
type losing struct {
	redis.Scripter
	requests, reply atomic.Bool
}

func (l *losing) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if l.requests.Load() {
		return redis.NewCmdResult(nil, io.ErrUnexpectedEOF)
	}
	cmd := l.Scripter.EvalSha(ctx, sha, keys, args...)
	if sha == script.Acquire.Hash() && l.reply.CompareAndSwap(true, false) {
		return redis.NewCmdResult(nil, io.ErrUnexpectedEOF)
	}
	return cmd
}

// If a client's call saw that Redis's clock was set back, and the reply was lost, the client
// knows it from the repeated call: it notices when the clock is set forward again.
func TestClockSetBackIsKnownThoughTheReplyIsLost(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		clock, way := newSetClock(b), &losing{Scripter: b.rdb}
		b.loadScripts()
		l := must(b.clientOf(way).LimiterWithRate("limit", guarded("10/2s")))
		check(b, l.Acquire(b.Context(), 10))
		used := time.Now()
		time.Sleep(ms(200))
		clock.step(-time.Hour)
		way.reply.Store(true)
		reservation := must(l.Reserve(b.Context(), 1, 10*time.Second))
		if d := time.Until(used.Add(2 * time.Second)); reservation.Delay() < d {
			b.Errorf("10 of 10 were used, and one more in %v, want %v", reservation.Delay(), d)
		}
		clock.step(time.Hour)
		check(b, l.Acquire(b.Context(), 5))
		if d := time.Since(used); d < 2*time.Second {
			b.Errorf("10 of 10, and 5 more %v later", d)
		}
	})
}

// A call that is repeated for a while says what Redis's clock must show when it gets there: so it
// is known by how much the clock was set back.
func TestClockSetBackWhileACallIsRepeated(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		const by = 4200 * time.Millisecond
		clock, way := newSetClock(b), &losing{Scripter: b.rdb}
		b.loadScripts()
		l := must(b.clientOf(way).LimiterWithRate("limit", guarded("10/2s")))
		check(b, l.Acquire(b.Context(), 1))
		time.Sleep(10 * time.Second)
		way.requests.Store(true)
		time.AfterFunc(ms(1500), func() {
			clock.step(-by)
			way.requests.Store(false)
		})
		check(b, l.Acquire(b.Context(), 10))
		used := time.Now()
		time.Sleep(ms(100))
		clock.step(by)
		check(b, must(b.client().LimiterWithRate("limit", guarded("10/2s"))).Acquire(b.Context(), 5))
		if d := time.Since(used); d < 2*time.Second {
			b.Errorf("10 of 10, and 5 more %v later", d)
		}
	})
}

// Redis's clock was set forward, and some permits were granted before anybody noticed: these
// count from the time when they were granted, and those from before count, too.
func TestClockSetForwardUnnoticedForAWhile(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		clock := newSetClock(b)
		l := b.limited(guarded("10/1s"))
		check(b, l.Acquire(b.Context(), 1))
		time.Sleep(2 * time.Second)
		clock.step(-time.Hour)
		check(b, l.Acquire(b.Context(), 1)) // which sees it
		time.Sleep(2 * time.Second)
		used := time.Now()
		for range 3 {
			check(b, l.Acquire(b.Context(), 1))
		}
		clock.step(time.Hour)
		for range 4 {
			time.Sleep(ms(230))
			check(b, l.Acquire(b.Context(), 1))
		}
		check(b, l.Acquire(b.Context(), 5))
		if d := time.Since(used); d < time.Second {
			b.Errorf("12 of 10 within %v", d)
		}
	})
}
