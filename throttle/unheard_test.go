package throttle

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestReleaseWithoutSubscription: permits that were given back in this process reach who waits for the same limit in
// it, though Redis cannot tell it.
func TestReleaseWithoutSubscription(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limiter(b.clientOf(struct{ redis.Scripter }{b.rdb}))
		check(b, l.SetRate(b.Context(), rate("2/1h")))
		used := b.taken(l, 1)
		b.expectTry(l, 1, true)
		a := &arrivals{b: b}
		first := a.wait(b.Context(), l, 1)
		b.until(ms(500))
		second := a.wait(b.Context(), l, 1)
		b.until(time.Second)
		check(b, used.Release(b.Context(), 1))
		b.until(2 * time.Second)
		check(b, l.Release(b.Context(), 1))
		a.wg.Wait()
		if first.err != nil || first.at > ms(1200) || second.err != nil || second.at > ms(2200) {
			b.Errorf("the waiters were done at %v with %v and at %v with %v, want after 1s and 2s", first.at, first.err, second.at, second.err)
		}
	})
}

// subscribesLate cannot subscribe until open is closed.
type subscribesLate struct {
	redis.UniversalClient
	open chan struct{}
}

func (s subscribesLate) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	<-s.open
	return s.UniversalClient.Subscribe(ctx, channels...)
}

// TestReleaseBeforeTheSubscription: permits that went back while a process could not hear of it reach who waits in it as
// soon as it can.
func TestReleaseBeforeTheSubscription(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("1/1h"))
		b.expectTry(l, 1, true)
		late := subscribesLate{b.rdb, make(chan struct{})}
		a := &arrivals{b: b}
		w := a.wait(b.Context(), b.limiter(b.clientOf(late)), 1)
		b.until(time.Second)
		check(b, l.Release(b.Context(), 1))
		b.until(2 * time.Second)
		close(late.open)
		a.wg.Wait()
		if w.err != nil || w.at > ms(2200) {
			b.Errorf("the waiter was done at %v with %v, want within 200ms of 2s", w.at, w.err)
		}
	})
}

// TestSlotBeforeTheSubscription: a slot that was handed to a process just before it could hear of it reaches who waits for
// it as soon as the process can.
func TestSlotBeforeTheSubscription(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		first := b.hold(b.inFlight(b.client(), "", 1), "first")
		late := subscribesLate{b.rdb, make(chan struct{})}
		go func() {
			b.until(ms(1005)) // who waits asks every 20ms as long as it hears nothing
			check(b, first.Release(b.Context()))
			close(late.open)
		}()
		second := b.hold(b.inFlight(b.clientOf(late), "", 1), "second")
		if at := time.Since(b.begin); at > ms(1100) {
			b.Errorf("the waiter had the slot at %v, want within 95ms of 1.005s", at)
		}
		check(b, second.Release(b.Context()))
	})
}
