package producer_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/producer"
)

// BenchmarkEnqueueFile reads and enqueues a file of b.N lines, and prints how many times faster that is than asynq's
// own Enqueue, one call after another. Run it with -benchtime 100000x.
func BenchmarkEnqueueFile(b *testing.B) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(b)})
	defer rdb.Close()
	ctx := b.Context()
	payload := []byte(`{"method":"POST","url":"https://api.example.com/v1/x","body":"hello"}`)

	client := asynq.NewClientFromRedisClient(rdb)
	var oneByOne time.Duration
	const round = 10_000 // lines of each way in turn, so that a busy machine slows both alike
	for done := 0; done < b.N; done += round {
		n := min(round, b.N-done)
		b.StopTimer()
		start := time.Now()
		for i := range n {
			task := asynq.NewTask("http:request", payload, asynq.TaskID(fmt.Sprint("one", done+i)))
			if _, err := client.EnqueueContext(ctx, task); err != nil {
				b.Fatal(err)
			}
		}
		oneByOne += time.Since(start)
		var file bytes.Buffer
		for i := range n {
			fmt.Fprintf(&file, `{"type":"http:request","payload":%s,"id":"file%d"}`+"\n", payload, done+i)
		}
		b.StartTimer()
		enqueueFile(b, rdb, &file)
	}
	perLine := b.Elapsed() / time.Duration(b.N)
	b.ReportMetric(1/perLine.Seconds(), "lines/s")
	b.ReportMetric(float64(oneByOne)/float64(b.Elapsed()), "times-one-by-one")
}

func enqueueFile(b *testing.B, rdb redis.UniversalClient, file io.Reader) {
	s := producer.New(rdb).Stream(b.Context(), producer.StreamEvents{
		Done: func(r producer.Result) {
			if r.Err != nil {
				b.Error(r.Line, r.Err)
			}
		},
		Outage: func(err error) { b.Error(err) },
	})
	for in := producer.NewReader(file); ; {
		line, err := in.Next()
		if err == io.EOF {
			break
		}
		if err := s.Add(line.Number, line.Job); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}
