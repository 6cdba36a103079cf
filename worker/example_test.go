package worker_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/embedded"
	"github.com/jobthrottle/jobthrottle/producer"
	"github.com/jobthrottle/jobthrottle/worker"
)

// A worker with a handler of one's own, on a Redis client that it shares with a producer.
func Example() {
	server, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	cfg := config.Default()
	cfg.Limits = map[string]config.Limit{"mail-api": {Rate: "100/1s"}}
	cfg.Jobs = map[string]config.Job{"email:": {Limits: []string{"mail-api"}}}
	w, err := worker.NewWithClient(cfg, zap.NewNop(), rdb)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w.HandleFunc("email:send", func(ctx context.Context, task *asynq.Task) error {
		defer stop()
		fmt.Printf("sending %s\n", task.Payload())
		return nil // or worker.RetryAfter(d), if the API says 429
	})
	for _, line := range w.Summary() {
		fmt.Println(line)
	}
	if _, err := producer.New(rdb).Enqueue(ctx, producer.Job{Type: "email:send", Payload: []byte(`{"to":"ann"}`)}); err != nil {
		log.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// pool default: 20 slots, 80 may wait; queues default 1
	// job email:: mail-api 100/1s
	// sending {"to":"ann"}
}

// A program that used to run an asynq.Server gives its mux to a worker.
func ExampleNewWith() {
	server, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	ctx, stop := context.WithCancel(context.Background())
	mux := asynq.NewServeMux()
	mux.HandleFunc("email:send", func(ctx context.Context, task *asynq.Task) error {
		defer stop()
		fmt.Printf("sending %s\n", task.Payload())
		return nil
	})
	w, err := worker.NewWith(config.Default(), worker.Options{
		Redis:   rdb,
		Handler: mux,
		Slog:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("email:send", []byte(`{"to":"ann"}`))); err != nil {
		log.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: sending {"to":"ann"}
}

// An Inspector says why a job does not run, without a worker of one's own.
func ExampleInspector() {
	server, err := embedded.Start() // your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	ctx := context.Background()
	job := producer.Job{Type: "email:send", ID: "welcome-1", Payload: []byte(`{"to":"ann"}`)}
	if _, err := producer.New(rdb).Enqueue(ctx, job); err != nil {
		log.Fatal(err)
	}

	why, err := worker.NewInspector(rdb).Explain(ctx, "welcome-1", "") // in any queue
	if err != nil {
		log.Fatal(err)
	}
	for _, line := range why.Text() {
		fmt.Println(line)
	}
	// Output:
	// Job "welcome-1" (email:send, queue default) is pending: it waits for a free slot of a worker, no job is before it. No limit holds it.
	// No running worker serves queue default: start one that has it in its pools.
}
