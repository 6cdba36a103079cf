package throttle_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/redis/go-redis/v9"
)

// BenchmarkManyLimiters prints what limiters that do not bind cost if each request is for another of
// many, as with limits by a key:
//
//	go test -run - -bench ManyLimiters -benchtime 1x ./throttle
func BenchmarkManyLimiters(b *testing.B) {
	for _, of := range []struct {
		name                 string
		limiters, goroutines int
	}{{"1000", 1_000, 256}, {"10000", 10_000, 256}, {"100000", 100_000, 256}, {"1000x1", 1_000, 1}} {
		b.Run(of.name, func(b *testing.B) {
			limiters, goroutines := of.limiters, of.goroutines
			rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(b), PoolSize: 256, ContextTimeoutEnabled: true})
			defer rdb.Close()
			c, err := throttle.New(rdb, throttle.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			r := throttle.Rate{Permits: 10_000, Interval: time.Second, KeepAlive: time.Minute}
			acquire := func(ctx context.Context, i int) error {
				l, err := c.LimiterWithRate(fmt.Sprintf("many:%d", i), r)
				if err != nil {
					return err
				}
				return l.Acquire(ctx, 1)
			}
			var wg sync.WaitGroup
			for g := range goroutines { // making a limiter costs more than using it
				wg.Go(func() {
					for i := g; i < limiters; i += goroutines {
						if err := acquire(b.Context(), i); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			before, cpu := c.Stats(), redisCPU(b, rdb)
			for b.Loop() {
				var w work
				w.add(b, goroutines, 3*time.Second, func(ctx context.Context) error { return acquire(ctx, rand.IntN(limiters)) })
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(w.perSecond(), "permits/s")
				w.report(b, "permit")
				b.ReportMetric(float64(c.Stats().Calls-before.Calls)/float64(len(w.took)), "calls/permit")
				b.ReportMetric(float64(c.Stats().Stale-before.Stale)/float64(len(w.took)), "stale/permit")
				b.ReportMetric(float64((redisCPU(b, rdb)-cpu).Microseconds())/float64(len(w.took)), "redis-us/permit")
			}
		})
	}
}
