package throttle

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/driver"
)

// However many processes wait, and so check rarely, each hears of a change at once.
func TestAllWaitersHearOfAChange(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("100/1h"))
		b.expectTry(l, 100, true)
		a := &arrivals{b: b}
		for range 20 {
			a.wait(b.Context(), b.limiter(b.client()), 1)
		}
		b.until(ms(4500))
		check(b, l.SetRate(b.Context(), rate("100/1h")))
		a.wg.Wait()
		for i, w := range a.waits {
			if w.err != nil || w.at.Truncate(time.Millisecond) != ms(4500) {
				b.Errorf("waiter %d was done at %v with %v, want at 4.5s", i, w.at, w.err)
			}
		}
	})
}

// What a client has used of a limit of its own counts for the longer interval that the limit gets, whether or not it asks
// meanwhile.
func TestLongerIntervalOfEachClient(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := perClient("10/1s")
		l := b.limited(r)
		b.expectTry(l, 10, true)
		r.Interval = time.Hour
		must(l.UpdateRate(b.Context(), r))
		b.until(30 * time.Minute)
		b.expectTry(l, 1, false)
		b.until(time.Hour + r.guard() + time.Second)
		b.expectTry(l, 10, true)
	})
}

// SetRate forgets what each client has used, however many clients there are.
func TestSetRateForgetsOfAllClients(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(perClient("10/1h"))
		b.expectTry(l, 10, true)
		var others []redis.Z
		for i := range 2000 {
			others = append(others, redis.Z{Score: float64(time.Now().Add(time.Second).UnixMicro()), Member: fmt.Sprint("client", i)})
		}
		check(b, b.rdb.ZAdd(b.Context(), l.keys()[5], others...).Err()) // they have come since
		check(b, b.limiter(b.client()).SetRate(b.Context(), perClient("10/1h")))
		b.expectTry(l, 10, true)
	})
}

// A client that cannot subscribe checks now and then.
func TestChangesAreSeenWithoutSubscription(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("1/1h"))
		b.expectTry(l, 1, true)
		a := &arrivals{b: b}
		scripter := struct{ redis.Scripter }{b.rdb}
		w := a.wait(b.Context(), b.limiter(b.clientOf(scripter)), 1)
		b.until(ms(4550))
		check(b, l.SetRate(b.Context(), rate("1/1h")))
		a.wg.Wait()
		if w.err != nil || w.at < ms(4550) || w.at > ms(4650) {
			b.Errorf("the waiter was done at %v with %v, want within 100ms of 4.55s", w.at, w.err)
		}
	})
}

// A subscription that was lost is renewed.
func TestSubscriptionIsRenewed(t *testing.T) {
	onRealRedis(t, func(b *bench) {
		l := b.limiter(b.clientOf(struct{ redis.Scripter }{b.rdb}))
		check(b, l.SetRate(b.Context(), rate("1/1h")))
		b.expectTry(l, 1, true)
		waiting := b.limiter(b.client())
		done := make(chan error)
		go func() { done <- waiting.Acquire(b.Context(), 1) }()
		subscribers := func(want int64) {
			b.Helper()
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for ; ; <-tick.C {
				n, err := b.rdb.PubSubNumSub(b.Context(), driver.ChangesChannel).Result()
				check(b, err)
				if n[driver.ChangesChannel] == want {
					return
				}
			}
		}
		subscribers(1)
		killed, err := b.rdb.ClientKillByFilter(b.Context(), "TYPE", "pubsub").Result()
		check(b, err)
		if killed != 1 {
			b.Fatalf("%d subscriptions killed, want 1", killed)
		}
		subscribers(1)
		check(b, l.SetRate(b.Context(), rate("1/1h")))
		check(b, <-done)
	})
}
