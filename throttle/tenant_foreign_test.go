package throttle

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestForeignTenants: whatever somebody has written into Redis where shares are kept makes nobody
// wait for ever, and breaks nothing.
func TestForeignTenants(t *testing.T) {
	t.Parallel()
	onRealRedis(t, func(b *bench) {
		l := b.limited(rate("20/1s"))
		prefix, ctx, far := "{"+l.Name()+"}:", b.Context(), time.Now().Add(4*time.Second).UnixMicro()
		check(b, b.rdb.HSet(ctx, prefix+"weights", "a", "1e300", "b", "1e-308", "c", "-1", "d", "x").Err())
		check(b, b.rdb.ZAdd(ctx, prefix+"finish", redis.Z{Member: "", Score: 1e299}, redis.Z{Member: "a", Score: 1e299}).Err())
		check(b, b.rdb.HSet(ctx, prefix+"waiting",
			"one", fmt.Sprintf("%d 1 0 0 -\t\t\tA\t1", far),
			"two", fmt.Sprintf("%d 1 0 0 -\ta\t1073741824 1073741824 1", far),
			"three", fmt.Sprintf("%d 1 0 0 -\ta\t1000000000000000000 9000000000000000000 1", far),
			"hour", fmt.Sprintf("%d 1 0 0 -\ta\t100 100 1", time.Now().Add(time.Hour).UnixMicro()), "four", "nonsense", "five", fmt.Sprintf("%d 1 9 9 1e300\tb\t1 0 0", far)).Err())
		var wg sync.WaitGroup
		for _, tenant := range []string{"a", "b", "c", "d", "e"} {
			for range 4 {
				wg.Go(func() { check(b, l.For(tenant).Acquire(ctx, 1)) })
			}
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			b.Fatal("somebody waits for ever")
		}
		if took := time.Since(b.begin); took > 10*time.Second {
			b.Errorf("20 permits of 20/1s took %v", took)
		}
	})
}

// TestShortTriesForATenant: a caller that has little time hears no, and not that Redis does not
// answer.
func TestShortTriesForATenant(t *testing.T) {
	onRealRedis(t, func(b *bench) {
		l := b.limited(rate("1/1s"))
		check(b, l.For("a").Acquire(b.Context(), 1))
		go func() { _ = l.For("a").Acquire(b.Context(), 1) }()
		for i := range 20 {
			if ok, err := l.For("b").TryAcquireFor(b.Context(), 1, 10*time.Millisecond); err != nil {
				b.Errorf("try %d: %v, %v", i, ok, err)
			}
		}
	})
}
