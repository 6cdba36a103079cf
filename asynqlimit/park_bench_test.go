package asynqlimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/producer"
)

// BenchmarkPark measures how fast one server parks a backlog, job by job.
func BenchmarkPark(b *testing.B) {
	s := newSite(b, redistest.Start(b))
	s.stopLimit("api", "50/1s")
	stream := producer.New(s.rdb).Stream(b.Context(), producer.StreamEvents{Done: func(producer.Result) {}, Outage: func(error) {}})
	for i := range b.N {
		if err := stream.Add(i+1, producer.Job{Type: "x:limited"}); err != nil {
			b.Fatal(err)
		}
	}
	if err := stream.Close(); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	began := time.Now()
	stop := s.serve(member{yaml: fiftyPerSecond, asynq: asynq.Config{Concurrency: 100}})
	s.await(time.Minute, func() (bool, string) {
		q := s.queue("default")
		return q.Retry >= b.N, fmt.Sprintf("%+v", q)
	})
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "jobs/s")
	b.StopTimer()
	stop()
}
