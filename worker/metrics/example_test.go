package metrics_test

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/worker"
	"github.com/jobthrottle/jobthrottle/worker/metrics"
)

// A worker of one's own, in a registry of one's own.
func ExampleNewCollector() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer rdb.Close()
	w, err := worker.NewWithClient(config.Default(), zap.NewNop(), rdb)
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := prometheus.NewRegistry()
	fmt.Println(registry.Register(metrics.NewCollector(w)))
	// Serve the registry with promhttp.HandlerFor, and let the worker run.

	// Output: <nil>
}
