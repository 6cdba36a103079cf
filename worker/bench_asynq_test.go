package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// BenchmarkCostOfLimits prints how fast one asynq server with no-op handlers is when each job
// acquires limits that never bind, one of the fleet and one of the client, compared with the
// same server without them. The two alternate in one run:
//
//	go test -run - -bench CostOfLimits -benchtime 1x ./worker
func BenchmarkCostOfLimits(b *testing.B) {
	const jobs, rounds = 2_000, 150 // one drain may take half as long again as the next
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(b), PoolSize: 100})
	defer rdb.Close()
	c, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	var limiters []*throttle.Limiter
	for _, limitType := range []throttle.RateType{throttle.Overall, throttle.PerClient} {
		l, err := c.LimiterWithRate(fmt.Sprintf("%s %v", b.Name(), limitType), throttle.Rate{Type: limitType, Permits: 1_000_000, Interval: time.Second})
		if err != nil {
			b.Fatal(err)
		}
		limiters = append(limiters, l)
	}
	limits, err := c.Group(limiters...)
	if err != nil {
		b.Fatal(err)
	}
	limited := func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			if err := limits.Acquire(ctx, 1); err != nil {
				return err
			}
			return next.ProcessTask(ctx, task)
		})
	}
	free := func(next asynq.Handler) asynq.Handler { return next }

	for b.Loop() {
		var with, without, ratios []float64
		var drained sync.WaitGroup // servers: to shut one down takes longer than the work it did
		calls := c.Stats().Calls
		for round := range rounds {
			var alone, under float64
			for i := range 2 { // each is first as often as the other
				if queue := fmt.Sprintf("round%d-%d", round, i); i == round%2 {
					alone = drainNoOps(b, rdb, queue, jobs, free, &drained).Seconds()
				} else {
					under = drainNoOps(b, rdb, queue, jobs, limited, &drained).Seconds()
				}
			}
			without, with, ratios = append(without, alone), append(with, under), append(ratios, alone/under)
		}
		drained.Wait()
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(jobs/median(without), "asynq-jobs/s")
		b.ReportMetric(jobs/median(with), "limited-jobs/s")
		b.ReportMetric(median(ratios), "of-asynq's-speed")
		b.ReportMetric(float64(c.Stats().Calls-calls)/(rounds*jobs), "calls/job")
	}
}

// median keeps what else the machine did in single rounds out of the result.
func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}

// drainNoOps is how long a server of 50 slots takes for that many jobs that do nothing. Its
// shutdown is left to drained.
func drainNoOps(b *testing.B, rdb *redis.Client, queue string, jobs int, middleware asynq.MiddlewareFunc, drained *sync.WaitGroup) time.Duration {
	b.Helper()
	client := asynq.NewClientFromRedisClient(rdb)
	var enqueuing sync.WaitGroup
	for range 50 {
		enqueuing.Go(func() {
			for range jobs / 50 {
				if _, err := client.Enqueue(asynq.NewTask("noop", nil), asynq.Queue(queue)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	enqueuing.Wait()

	var left atomic.Int64
	left.Store(int64(jobs))
	done := make(chan struct{})
	mux := asynq.NewServeMux()
	mux.Use(middleware)
	mux.HandleFunc("noop", func(context.Context, *asynq.Task) error {
		if left.Add(-1) == 0 {
			close(done)
		}
		return nil
	})
	server := asynq.NewServerFromRedisClient(rdb, asynq.Config{Concurrency: 50, LogLevel: asynq.FatalLevel, Queues: map[string]int{queue: 1}})
	begin := time.Now()
	if err := server.Start(mux); err != nil {
		b.Fatal(err)
	}
	<-done
	took := time.Since(begin)
	drained.Go(server.Shutdown)
	return took
}
