package throttle

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/redis/go-redis/v9"
)

func smoke(t *testing.T, addr string) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	c, _ := New(rdb, Options{})
	defer c.Close()
	ctx := context.Background()
	l, _ := c.Limiter("x")
	_, err := l.TryAcquire(ctx, 1)
	fmt.Println(err)
	fmt.Println(l.TrySetRate(ctx, Rate{Permits: 10, Interval: time.Second}))
	fmt.Println(l.TrySetRate(ctx, Rate{Permits: 10, Interval: time.Second}))
	fmt.Println(l.Config(ctx))
	for i := range 12 {
		ok, err := l.TryAcquire(ctx, 1)
		a, _ := l.AvailablePermits(ctx)
		fmt.Println(i, ok, err, a)
	}
	start := time.Now()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var ts []time.Duration
	for range 25 {
		wg.Go(func() {
			if err := l.Acquire(ctx, 1); err != nil {
				fmt.Println(err)
			}
			mu.Lock()
			ts = append(ts, time.Since(start))
			mu.Unlock()
		})
	}
	wg.Wait()
	sort.Slice(ts, func(i, j int) bool { return ts[i] < ts[j] })
	fmt.Println(ts)
	_, err = l.TryAcquire(ctx, 11)
	fmt.Println(err)
	fmt.Println(l.Inspect(ctx))
	fmt.Println(l.Delete(ctx))
	fmt.Println(rdb.Keys(ctx, "*").Result())
	fmt.Printf("%+v\n", c.Stats())
}

func TestSmokeReal(t *testing.T) { smoke(t, redistest.Start(t)) }
func TestSmokeMini(t *testing.T) { smoke(t, miniredis.RunT(t).Addr()) }
