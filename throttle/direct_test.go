package throttle

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/wire"
)

// A caller that finds no other makes the call itself, if its context cannot end meanwhile. If a
// hook of the Redis client panics, the panic reaches that caller. The queue goes on, repeats the
// call, and gives back what nobody waits for any more.
func TestCallerMakesTheCall(t *testing.T) {
	for name, used := range map[string]int64{"due": 1, "ahead": 5} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				l := b.troubled(rate("5/5s"), during(2, 2, func(func() *redis.Cmd) *redis.Cmd { panic("a hook") }))
				check(b, l.Acquire(context.Background(), used)) // from then on it knows Redis to be near
				time.Sleep(time.Millisecond)                    // and the goroutine that made that call is done
				func() {
					defer func() {
						if r := recover(); r != "a hook" {
							b.Errorf("the caller recovered %v", r)
						}
					}()
					_ = l.Acquire(context.Background(), 1)
				}()
				b.until(time.Second)
				b.expectAvailable(l, 5-used)
				check(b, l.Acquire(context.Background(), 1)) // exactly when its permit is due
				if l.c.core.Forget() > 0 {
					b.Error("the queue has still somebody in it")
				}
			})
		})
	}
}

// If the reply to a caller's own call is lost, the call is repeated, and counts once; so does a
// call that never reached Redis.
func TestCallersOwnCallCountsOnce(t *testing.T) {
	for name, wrong := range map[string]func(func() *redis.Cmd) *redis.Cmd{"lost reply": loseReply, "refused": refuse} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				l := b.troubled(rate("5/5s"), during(2, 2, wrong))
				check(b, l.Acquire(context.Background(), 1))
				check(b, l.Acquire(context.Background(), 2))
				b.expectAvailable(l, 2)
			})
		})
	}
}

// A caller that waits for Redis itself notices the end of its context long before go-redis gives
// up, and what Redis then grants is given back.
func TestCallerHearsItsContext(t *testing.T) {
	network, err := wire.New(redistest.Start(t))
	check(t, err)
	defer network.Close()
	b := &bench{T: t, rdb: dial(t, network.Addr), begin: time.Now()}
	r := rate("10/1h")
	l := b.limited(r)
	for range 2 {
		check(b, l.Acquire(b.Context(), 1))
	}
	network.Set(wire.Trouble{Hold: true})
	ctx, cancel := context.WithCancel(b.Context())
	defer time.AfterFunc(5*time.Millisecond, cancel).Stop()
	begin := time.Now()
	if err := l.Acquire(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("it took %v; go-redis waits for 5s", took)
	}
	network.Set(wire.Trouble{})
	check(b, l.Acquire(b.Context(), 1)) // in the queue behind what is repeated
	check(b, l.c.Close())
	b.expectAvailable(b.limiter(b.client()), 7)
}

// A caller whose Redis client heeds no deadlines does not wait for Redis itself if it has a time
// by which it wants to know.
func TestCallerKeepsItsTimeout(t *testing.T) {
	network, err := wire.New(redistest.Start(t))
	check(t, err)
	defer network.Close()
	rdb := redis.NewClient(&redis.Options{Addr: network.Addr})
	defer rdb.Close()
	b := &bench{T: t, rdb: rdb, begin: time.Now()}
	l := b.limited(rate("10/1h"))
	for range 2 {
		check(b, l.Acquire(context.Background(), 1))
	}
	network.Set(wire.Trouble{Hold: true})
	begin := time.Now()
	if ok, err := l.TryAcquireFor(context.Background(), 1, 100*time.Millisecond); ok || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, %v: nothing was decided", ok, err)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("it took %v of 100ms; go-redis waits for 5s", took)
	}
	network.Set(wire.Trouble{})
	check(b, l.c.Close())
}
