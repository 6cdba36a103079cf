package admin_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/worker"
	"github.com/jobthrottle/jobthrottle/worker/admin"
)

// BenchmarkCostOfLooking prints how many jobs a worker does in a second while Prometheus
// scrapes it every 5 s and one viewer has the page open, compared with the same worker that
// nobody views. The two alternate in one run. It also prints the processor time that both and
// Redis took for it, which tells more if others use the machine:
//
//	go test -run - -bench CostOfLooking -benchtime 1x ./worker/admin
func BenchmarkCostOfLooking(b *testing.B) {
	const jobs, rounds = 30_000, 8
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(b), PoolSize: 100})
	defer rdb.Close()
	cfg, err := config.Parse("config.yaml", []byte(`
limits: { api: { rate: 1000000/1s }, api-worker: { rate: 1000000/1s, type: per_client } }
pools: [ { name: default, concurrency: 50 } ]
jobs: { noop: { limits: [api, api-worker] } }
`))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var with, without, ratios, cpu []float64
		for i := range rounds {
			speed, used := map[bool]float64{}, map[bool]float64{}
			for _, seen := range []bool{i%2 == 0, i%2 != 0} { // each goes first as often as the other
				enqueueNoOps(b, rdb, jobs)
				before := processorTime(b, rdb)
				speed[seen] = jobs / drain(b, rdb, cfg, jobs, seen).Seconds()
				used[seen] = processorTime(b, rdb) - before
			}
			with, without = append(with, speed[true]), append(without, speed[false])
			ratios, cpu = append(ratios, speed[true]/speed[false]), append(cpu, used[true]/used[false])
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(median(without), "unseen-jobs/s")
		b.ReportMetric(median(with), "seen-jobs/s")
		b.ReportMetric(median(ratios), "of-unseen")
		b.ReportMetric(median(cpu), "of-unseen-cpu")
	}
}

// processorTime is how many seconds this process and Redis have used so far.
func processorTime(b *testing.B, rdb *redis.Client) float64 {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	total := time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
	info, err := rdb.InfoMap(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for _, field := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds, err := strconv.ParseFloat(info["CPU"][field], 64)
		if err != nil {
			b.Fatal(err)
		}
		total += seconds
	}
	return total
}

// median keeps what else the machine did in single rounds out of the result.
func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}

func enqueueNoOps(b *testing.B, rdb *redis.Client, jobs int) {
	b.Helper()
	client := asynq.NewClientFromRedisClient(rdb)
	var enqueuing sync.WaitGroup
	for range 50 {
		enqueuing.Go(func() {
			for range jobs / 50 {
				if _, err := client.Enqueue(asynq.NewTask("noop", nil)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	enqueuing.Wait()
}

// drain is how long a worker takes for that many jobs that do nothing.
func drain(b *testing.B, rdb *redis.Client, cfg *config.Config, jobs int, seen bool) time.Duration {
	b.Helper()
	w, err := worker.NewWithClient(cfg, zap.NewNop(), rdb)
	if err != nil {
		b.Fatal(err)
	}
	var left atomic.Int64
	left.Store(int64(jobs))
	drained := make(chan struct{})
	w.HandleFunc("noop", func(context.Context, *asynq.Task) error {
		if left.Add(-1) == 0 {
			close(drained)
		}
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	if seen {
		listener, err := admin.Listen("127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		server := admin.Serve(listener, w, admin.Options{})
		defer server.Close()
		addr := "http://" + listener.Addr().String()
		running.Go(func() { watch(ctx, b, addr+"/api/overview", time.Second) })
		running.Go(func() { watch(ctx, b, addr+"/metrics", 5*time.Second) })
	}
	begin := time.Now()
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	<-drained
	took := time.Since(begin)
	stop()
	running.Wait()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	return took
}

// watch asks for a page at once and then every so often, as a viewer or Prometheus does.
func watch(ctx context.Context, b *testing.B, url string, every time.Duration) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			b.Error(err)
			return
		}
		resp, err := client.Do(req)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			b.Error(err)
			return
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil && ctx.Err() == nil {
			b.Error(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			b.Errorf("%s: %s", url, resp.Status)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// BenchmarkLook is the cost of either kind of view: an overview, which is read at most once a
// second however many view it, and all metrics, each scrape with an overview of its own. There
// are three limits that are in use, one of them with three clients.
func BenchmarkLook(b *testing.B) {
	s := newSite(b, 3, `
limits: { api: { rate: 500/1s }, api-worker: { rate: 300/1s, type: per_client }, account: { rate: 500/1s, key: payload.account } }
jobs: { "http:request": { limits: [api, api-worker, account] } }
http: { allow_hosts: ["$API"] }
`, "")
	s.enqueue(5000, "default", "acme")
	s.awaitRequests(500)
	b.Run("overview", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.first.Overview(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("metrics", func(b *testing.B) {
		all := admin.Registry(s.first)
		for b.Loop() {
			if _, err := all.Gather(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
