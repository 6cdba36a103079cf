package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestCluster: on a Redis Cluster, queues and limits are on different nodes. Each job parks,
// comes back and runs once.
func TestCluster(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.StartCluster(t)})
	t.Cleanup(func() { rdb.Close() })
	cfg, err := config.Parse("config.yaml", []byte(`
redis: { addrs: ["10.0.0.1:6379", "10.0.0.2:6379"] } # several: a Cluster
limits: { "{api}": { rate: 40/1s }, "{api}:account": { rate: 20/1s, key: payload.account }, other: { rate: 30/1s } }
jobs: { "x:": { limits: ["{api}", "{api}:account"] }, "y:": { limits: [other] } }
`))
	if err != nil {
		t.Fatal(err)
	}
	queues := map[string]int{"one": 1, "two": 1, "three": 1}
	client := asynq.NewClientFromRedisClient(rdb)
	const jobs = 150
	for i := range jobs {
		task := asynq.NewTask([]string{"x:job", "y:job"}[i%2], fmt.Appendf(nil, `{"account": %d}`, i%3))
		if _, err := client.Enqueue(task, asynq.TaskID(fmt.Sprint(i)), asynq.Queue([]string{"one", "two", "three"}[i%3]), asynq.MaxRetry(0)); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	ran, done := map[string]int{}, make(chan struct{})
	mux := asynq.NewServeMux()
	for _, pattern := range []string{"x:", "y:"} {
		mux.HandleFunc(pattern, func(ctx context.Context, _ *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			mu.Lock()
			defer mu.Unlock()
			if ran[id]++; len(ran) == jobs && ran[id] == 1 {
				close(done)
			}
			return nil
		})
	}
	ctx, stop := context.WithCancel(context.Background())
	var servers sync.WaitGroup
	for range 2 {
		limits, err := asynqlimit.New(rdb, cfg, asynqlimit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		srv := asynq.NewServerFromRedisClient(limits.Redis(), limits.Configure(asynq.Config{Concurrency: 5, Queues: queues, LogLevel: asynq.WarnLevel}))
		servers.Go(func() {
			if err := limits.Serve(ctx, srv, mux); err != nil {
				t.Error(err)
			}
		})
	}
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		mu.Lock()
		t.Errorf("%d of %d jobs ran", len(ran), jobs)
		mu.Unlock()
	}
	stop()
	servers.Wait()
	for id, n := range ran {
		if n != 1 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
}

// TestClusterTags: limits of a job that lie in different slots of a Cluster are refused when the server is made,
// though the configuration does not say that Redis is a Cluster.
func TestClusterTags(t *testing.T) {
	t.Parallel()
	cfg, err := config.Parse("config.yaml", []byte(`
limits: { api: { rate: 40/1s }, account: { rate: 20/1s, key: payload.account } }
jobs: { "x:": { limits: [api, account] } }
`))
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}) // it is not asked
	t.Cleanup(func() { rdb.Close() })
	_, err = asynqlimit.New(rdb, cfg, asynqlimit.Options{})
	if wrong, ok := errors.AsType[*config.Error](err); !ok || wrong.Key != "jobs.x:.limits[1]" {
		t.Errorf("got %v, want an error of the configuration that names the second limit", err)
	}
	single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { single.Close() })
	limits, err := asynqlimit.New(single, cfg, asynqlimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	limits.Close()
}
