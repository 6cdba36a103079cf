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

// BenchmarkInFlight reports how many jobs of 20 ms four servers of 10 slots do in a
// second, without a limit and with one in flight of 40, and the script calls of each job
// beyond asynq's.
func BenchmarkInFlight(b *testing.B) {
	const jobs = 4000
	for name, yaml := range map[string]string{
		"without":      `jobs: { x: {} }`,
		"in_flight 40": `{limits: { all: { in_flight: 40 } }, jobs: { x: { limits: [all] } }}`,
	} {
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
						name: fmt.Sprint(i), yaml: yaml, asynq: asynq.Config{Concurrency: 10},
						made:   func(l *asynqlimit.Limits) { stats = append(stats, l.Stats) },
						handle: func(context.Context, *asynq.Task) error { time.Sleep(20 * time.Millisecond); return nil },
					}))
				}
				s.awaitDone("default", 2*time.Minute)
				b.ReportMetric(jobs/time.Since(began).Seconds(), "jobs/s")
				calls := int64(0)
				for _, of := range stats {
					calls += of().Throttle.Calls
				}
				b.ReportMetric(float64(calls)/jobs, "calls/job")
				for _, stop := range stops {
					stop()
				}
			}
		})
	}
}
