package throttle

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestCloseWhileAChangeIsHeardOf: a call under way when the Client is closed reports that the
// configuration has changed. Close gives back what the Client has reserved, once, and returns.
func TestCloseWhileAChangeIsHeardOf(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		ctx := b.Context()
		goOn, sent := make(chan struct{}), make(chan struct{}, 1)
		var stop atomic.Bool
		c, err := New(&faulty{Scripter: b.rdb, fault: func(_ int64, send func() *redis.Cmd) *redis.Cmd {
			reply := send()
			if stop.CompareAndSwap(true, false) {
				sent <- struct{}{}
				<-goOn
			}
			return reply
		}}, Options{})
		check(b, err)
		ls, g := b.grouped(c, rate("5/2s"), rate("7/2s"))
		check(b, g.Acquire(ctx, 5))
		go func() { _ = g.Acquire(context.WithoutCancel(ctx), 1) }() // a reservation
		time.Sleep(ms(10))
		mine := must(b.client().Limiter(ls[1].name))
		theirs := must(mine.Reserve(ctx, 1, 10*time.Second)) // in the limiter that does not change: due now
		check(b, theirs.Wait(ctx))
		check(b, must(b.client().Limiter(ls[0].name)).Pause(ctx, 3*time.Second))
		stop.Store(true)
		go func() { _ = g.Acquire(context.WithoutCancel(ctx), 1) }()
		<-sent
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		time.Sleep(ms(10))
		calls := c.Stats().Calls
		close(goOn)
		select {
		case err := <-closed:
			check(b, err)
		case <-time.After(3 * time.Second):
			b.Fatal("Close does not return")
		}
		if n := c.Stats().Calls - calls; n > 5 {
			b.Errorf("%d calls after Close", n)
		}
		u := must(mine.Inspect(ctx))
		if u.Used != 6 || u.Reserved != 0 {
			b.Errorf("%d permits used and %d reserved, want 6 and 0", u.Used, u.Reserved)
		}
	})
}
