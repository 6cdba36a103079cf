// Command server is an asynq server with limits: three lines in main are all that
// a server without them does not have. Run it in the root of the repository.
package main

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/config"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true, PoolSize: 60})
	defer rdb.Close()

	mux := asynq.NewServeMux()
	mux.HandleFunc("stripe:charge", charge)

	cfg, err := config.Load("examples/server/limits.yaml")
	if err != nil {
		return err
	}
	limits, err := asynqlimit.New(rdb, cfg, asynqlimit.Options{})
	if err != nil {
		return err
	}
	srv := asynq.NewServerFromRedisClient(limits.Redis(), limits.Configure(asynq.Config{Concurrency: 20}))
	return limits.Serve(ctx, srv, mux) // in place of srv.Run(mux)
}

// charge is where a handler of yours calls the API.
func charge(_ context.Context, task *asynq.Task) error {
	fmt.Printf("%s %s %s\n", time.Now().Format("15:04:05.000"), task.Type(), task.Payload())
	return nil
}
