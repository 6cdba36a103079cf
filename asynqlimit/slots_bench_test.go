package asynqlimit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// BenchmarkInFlight reports how many jobs of 20 ms four servers with 10 slots do in a second,
// without a limit and with one of 40 in flight, and how many script calls each job costs beyond
// asynq's. It does the same for servers with a single slot.
func BenchmarkInFlight(b *testing.B) {
	for name, c := range map[string]struct {
		yaml        string
		slots, jobs int
	}{
		"without":      {`jobs: { x: {} }`, 10, 4000},
		"in_flight 40": {`{limits: { all: { in_flight: 40 } }, jobs: { x: { limits: [all] } }}`, 10, 4000},
		"single slots": {`{limits: { all: { in_flight: 4 } }, jobs: { x: { limits: [all] } }}`, 1, 400},
	} {
		yaml, jobs := c.yaml, c.jobs
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s := newSite(b, redistest.Start(b))
				for i := range jobs {
					s.enqueue("x", fmt.Sprintf("x%05d", i))
				}
				began := time.Now()
				var stats []func() asynqlimit.Stats
				var stops []func()
				for i := range 4 {
					stops = append(stops, s.serve(member{
						name: fmt.Sprint(i), yaml: yaml, asynq: asynq.Config{Concurrency: c.slots},
						made:   func(l *asynqlimit.Limits) { stats = append(stats, l.Stats) },
						handle: func(context.Context, *asynq.Task) error { time.Sleep(20 * time.Millisecond); return nil },
					}))
				}
				s.awaitDone("default", 2*time.Minute)
				b.ReportMetric(float64(jobs)/time.Since(began).Seconds(), "jobs/s")
				calls := int64(0)
				for _, of := range stats {
					calls += of().Throttle.Calls
				}
				b.ReportMetric(float64(calls)/float64(jobs), "calls/job")
				for _, stop := range stops {
					stop()
				}
			}
		})
	}
}
