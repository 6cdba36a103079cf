package throttle

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// If a Redis stands still for less than the 4 s that a TryAcquire waits, the TryAcquire gets its
// answer, even if the Redis client heeds deadlines and the call is shared.
func TestTryAcquireOutlastsAStall(t *testing.T) {
	for name, n := range map[string]int{"alone": 1, "shared": 60} {
		t.Run(name, func(t *testing.T) {
			onRealRedis(t, func(b *bench) {
				o := *b.rdb.Options()
				o.ContextTimeoutEnabled, o.PoolSize = true, 2*n // nobody waits for a connection: go-redis keeps those timers for other tests
				rdb := redis.NewClient(&o)
				defer rdb.Close()
				c := b.clientOf(rdb)
				ls := many(b, c, n, "stall:%d", guarded("1000/1h"))
				h := new(sharedCalls)
				rdb.AddHook(h)
				check(b, b.rdb.Do(b.Context(), "CLIENT", "PAUSE", "250", "ALL").Err())
				begin := time.Now()
				errs := make([]error, n)
				var wg sync.WaitGroup
				for i, l := range ls {
					wg.Go(func() { _, errs[i] = l.TryAcquire(context.Background(), 1) })
				}
				wg.Wait()
				if err := errors.Join(errs...); err != nil {
					b.Errorf("within %v: %v", time.Since(begin), err)
				}
				if n > 1 && h.n == 0 {
					b.Error("no call was shared")
				}
			})
		})
	}
}
