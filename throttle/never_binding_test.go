package throttle_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/redis/go-redis/v9"
)

// BenchmarkNeverBinding prints what a limit costs that never binds, one permit
// at a time, beside the least that a script call can cost, in the same run:
//
//	go test -run - -bench NeverBinding -benchtime 1x ./throttle
func BenchmarkNeverBinding(b *testing.B) {
	for _, goroutines := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("%d", goroutines), func(b *testing.B) {
			rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(b), PoolSize: max(goroutines, 10), ContextTimeoutEnabled: true})
			defer rdb.Close()
			c, err := throttle.New(rdb, throttle.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			l, err := c.LimiterWithRate(strings.ReplaceAll(b.Name(), "/", ":"), throttle.Rate{Permits: throttle.MaxPermits, Interval: time.Second})
			if err != nil {
				b.Fatal(err)
			}
			empty := redis.NewScript("return 1")
			acquire := func(ctx context.Context) error { return l.Acquire(ctx, 1) }
			script := func(ctx context.Context) error { return empty.Run(ctx, rdb, nil).Err() }

			for b.Loop() {
				var acquired, called work
				before := c.Stats()
				for range 3 { // they take turns, so that both suffer alike from whatever else the machine does
					acquired.add(b, goroutines, time.Second, acquire)
					called.add(b, goroutines, time.Second, script)
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(acquired.perSecond(), "permits/s")
				b.ReportMetric(called.perSecond(), "scripts/s")
				b.ReportMetric(acquired.perSecond()/called.perSecond(), "permits/script")
				acquired.report(b, "permit")
				called.report(b, "script")
				b.ReportMetric(float64(c.Stats().Calls-before.Calls)/float64(len(acquired.took)), "calls/permit")
			}
		})
	}
}

// work is how long each of many calls took.
type work struct {
	took   []time.Duration
	length time.Duration
}

// add lets goroutines call f again and again for so long.
func (w *work) add(b *testing.B, goroutines int, length time.Duration, f func(context.Context) error) {
	b.Helper()
	var wg sync.WaitGroup
	took := make([][]time.Duration, goroutines)
	begin := time.Now()
	for g := range goroutines {
		wg.Go(func() {
			for last := begin; last.Sub(begin) < length; {
				if err := f(b.Context()); err != nil {
					b.Error(err)
					return
				}
				now := time.Now()
				took[g] = append(took[g], now.Sub(last))
				last = now
			}
		})
	}
	wg.Wait()
	w.length += time.Since(begin)
	w.took = append(w.took, slices.Concat(took...)...)
}

func (w *work) perSecond() float64 { return float64(len(w.took)) / w.length.Seconds() }

func (w *work) report(b *testing.B, what string) {
	b.Helper()
	slices.Sort(w.took)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(w.took[len(w.took)*p/100].Nanoseconds())/1000, fmt.Sprintf("%s-p%d-us", what, p))
	}
}
