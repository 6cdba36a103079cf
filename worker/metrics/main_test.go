package metrics_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/strictapi"
	"github.com/jobthrottle/jobthrottle/worker"
	"github.com/jobthrottle/jobthrottle/worker/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nightly says whether tests run at full size.
func nightly() bool { return os.Getenv("JOBTHROTTLE_NIGHTLY") == "1" }

// site is workers that call an API that counts, each with a registry of its own.
type site struct {
	tb      testing.TB
	rdb     *redis.Client
	api     *strictapi.API
	apiURL  string
	workers []*prometheus.Registry
	jobs    int // enqueued
}

func newSite(tb testing.TB, workers int, yaml string) *site {
	tb.Helper()
	s := &site{tb: tb, api: strictapi.New(1_000_000, time.Second)}
	api := httptest.NewServer(s.api)
	tb.Cleanup(api.Close)
	s.apiURL = api.URL
	addr := redistest.Start(tb)
	s.rdb = redis.NewClient(&redis.Options{Addr: addr, PoolSize: 50})
	tb.Cleanup(func() { s.rdb.Close() })
	yaml = strings.ReplaceAll(yaml, "$API", api.Listener.Addr().String())
	cfg, err := config.Parse("config.yaml", []byte(fmt.Sprintf("redis: {addrs: [%q]}\n%s", addr, yaml)))
	if err != nil {
		tb.Fatal(err)
	}
	for range workers {
		s.workers = append(s.workers, s.work(cfg))
	}
	return s
}

// work runs a worker until the test ends.
func (s *site) work(cfg *config.Config) *prometheus.Registry {
	s.tb.Helper()
	w, err := worker.New(cfg, zap.NewNop())
	if err != nil {
		s.tb.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry() // which checks what the collector says against its descriptions
	registry.MustRegister(metrics.NewCollector(w))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	s.tb.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			s.tb.Errorf("Run: %v", err)
		}
	})
	return registry
}

// enqueue adds n jobs of a type, with these fields in their payload beside the API's URL.
func (s *site) enqueue(n int, taskType string, fields map[string]string) {
	s.tb.Helper()
	client := asynq.NewClientFromRedisClient(s.rdb)
	payload := map[string]string{"method": "GET", "url": s.apiURL}
	maps.Copy(payload, fields)
	body, err := json.Marshal(payload)
	if err != nil {
		s.tb.Fatal(err)
	}
	for range n {
		if _, err := client.Enqueue(asynq.NewTask(taskType, body), asynq.MaxRetry(5), asynq.Retention(time.Hour)); err != nil {
			s.tb.Fatal(err)
		}
	}
	s.jobs += n
}

func (s *site) await(within time.Duration, condition func() (bool, string)) {
	s.tb.Helper()
	timeout := time.After(within)
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		ok, state := condition()
		if ok {
			return
		}
		select {
		case <-timeout:
			s.tb.Fatalf("after %v: %s", within, state)
		case <-poll.C:
		}
	}
}

// gather returns what each worker shows: metrics by name.
func (s *site) gather() []map[string]*dto.MetricFamily {
	s.tb.Helper()
	var all []map[string]*dto.MetricFamily
	for _, registry := range s.workers {
		families, err := registry.Gather()
		if err != nil {
			s.tb.Fatal(err)
		}
		byName := map[string]*dto.MetricFamily{}
		for _, f := range families {
			byName[f.GetName()] = f
		}
		all = append(all, byName)
	}
	return all
}

// sum adds up the samples of a metric over all workers, of those with all the
// given "label=value"s. A histogram counts as its number of observations.
func sum(all []map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	total := 0.0
	for _, families := range all {
		for _, m := range families[name].GetMetric() {
			var has []string
			for _, l := range m.GetLabel() {
				has = append(has, l.GetName()+"="+l.GetValue())
			}
			if slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(has, l) }) {
				continue
			}
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return total
}
