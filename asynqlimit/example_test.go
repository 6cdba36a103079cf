package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/throttle/httplimit"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// A program that runs an asynq.Server gets limits with three lines: one for the limits, one for
// the client and configuration of the server, and Serve in place of Run.
func Example() {
	redisServer, err := miniredis.Run() // your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer redisServer.Close()
	rdb := redis.NewClient(&redis.Options{Addr: redisServer.Addr()})
	defer rdb.Close()

	cfg, err := config.Parse("config.yaml", []byte(`
limits:
  mail: { rate: 5/1s }                           # for all processes together
  mail-customer: { rate: 2/1s, key: payload.customer }
jobs:
  "mail:": { limits: [mail, mail-customer] }
`))
	if err != nil {
		log.Fatal(err)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	mux := asynq.NewServeMux()
	sent := 0
	mux.HandleFunc("mail:welcome", func(_ context.Context, task *asynq.Task) error {
		fmt.Printf("%s\n", task.Payload())
		if sent++; sent == 3 {
			stop() // the example ends here
		}
		return nil
	})
	client := asynq.NewClientFromRedisClient(rdb)
	for range 3 {
		if _, err := client.Enqueue(asynq.NewTask("mail:welcome", []byte(`{"customer": "acme"}`))); err != nil {
			log.Fatal(err)
		}
	}

	limits, err := asynqlimit.New(rdb, cfg, asynqlimit.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	srv := asynq.NewServerFromRedisClient(limits.Redis(), limits.Configure(asynq.Config{Concurrency: 1}))
	if err := limits.Serve(ctx, srv, mux); err != nil {
		log.Fatal(err)
	}
	// Output:
	// {"customer": "acme"}
	// {"customer": "acme"}
	// {"customer": "acme"}
}

// A program shows its limits in its own HTTP server: metrics for Prometheus, and a page for
// operators. Keep them where strangers cannot reach them.
func ExampleLimits_Admin() {
	redisServer, err := miniredis.Run() // your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer redisServer.Close()
	rdb := redis.NewClient(&redis.Options{Addr: redisServer.Addr()})
	defer rdb.Close()
	cfg, err := config.Parse("config.yaml", []byte(`
limits: { mail: { rate: 5/1s } }
jobs: { "mail:": { limits: [mail] } }
admin: { token: "which the page asks for before it changes a limit" }
`))
	if err != nil {
		log.Fatal(err)
	}
	limits, err := asynqlimit.New(rdb, cfg, asynqlimit.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close() // Serve does that

	registry := prometheus.NewRegistry() // or the default
	registry.MustRegister(limits.Collector())
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/limits/", http.StripPrefix("/limits", limits.Admin()))
	server := httptest.NewServer(mux) // your http.Server
	defer server.Close()

	for _, path := range []string{"/metrics", "/limits/", "/limits/api/explain?task=nobody"} {
		resp, err := server.Client().Get(server.URL + path)
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
		fmt.Println(path, resp.Status)
	}
	// Output:
	// /metrics 200 OK
	// /limits/ 200 OK
	// /limits/api/explain?task=nobody 404 Not Found
}

// A handler returns RetryAfter if its API says that it has to wait.
func ExampleRetryAfter() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer api.Close()
	handler := func(ctx context.Context, task *asynq.Task) error {
		resp, err := http.Get(api.URL)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if d, ok := httplimit.RetryAfter(resp); ok && resp.StatusCode == http.StatusTooManyRequests {
			return asynqlimit.RetryAfter(d)
		}
		return nil
	}
	err := handler(context.Background(), asynq.NewTask("sync:contacts", nil))
	if later, ok := errors.AsType[*asynqlimit.RetryAfterError](err); ok {
		fmt.Println("the job comes back in", later.After)
	}
	// Output: the job comes back in 30s
}

// A handler that finds out what a job really cost corrects what the job took.
func ExampleSettleLimit() {
	redisServer, err := miniredis.Run() // your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer redisServer.Close()
	rdb := redis.NewClient(&redis.Options{Addr: redisServer.Addr()})
	defer rdb.Close()
	cfg, err := config.Parse("config.yaml", []byte(`
limits: { llm-tokens: { rate: 1000/1h } }
jobs: { "llm:": { limits: [llm-tokens], permits: payload.max_tokens } }
`))
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	mux := asynq.NewServeMux()
	mux.HandleFunc("llm:summarize", func(ctx context.Context, task *asynq.Task) error {
		defer stop()       // the example ends here
		used := int64(300) // as the API's answer says
		return asynqlimit.SettleLimit(ctx, "llm-tokens", used)
	})
	task := asynq.NewTask("llm:summarize", []byte(`{"max_tokens": 800}`))
	if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(task); err != nil {
		log.Fatal(err)
	}

	limits, err := asynqlimit.New(rdb, cfg, asynqlimit.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	srv := asynq.NewServerFromRedisClient(limits.Redis(), limits.Configure(asynq.Config{Concurrency: 1}))
	if err := limits.Serve(ctx, srv, mux); err != nil {
		log.Fatal(err)
	}
	usages, err := operate.NewFleet(rdb).Inspect(context.Background(), "llm-tokens")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(usages[0].Used, "tokens are used")
	// Output: 300 tokens are used
}

// A handler whose job cannot run as things stand says so: the job waits until somebody has mended
// the cause, and does not use up a retry.
func ExampleBlocked() {
	credentials := map[string]string{}
	handler := func(ctx context.Context, task *asynq.Task) error {
		if _, ok := credentials["acme"]; !ok {
			return asynqlimit.Blocked("no_credential", errors.New("acme has not connected its account"))
		}
		return nil
	}
	err := handler(context.Background(), asynq.NewTask("sync:contacts", nil))
	if blocked, ok := errors.AsType[*asynqlimit.BlockedError](err); ok {
		fmt.Printf("it waits because of %s: %v\n", blocked.Reason, blocked.Err)
	}
	// Output: it waits because of no_credential: acme has not connected its account
}

// A handler that has to prepare its request acquires its permits itself, immediately before it
// sends.
func ExampleAcquire() {
	redisServer, err := miniredis.Run() // your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer redisServer.Close()
	rdb := redis.NewClient(&redis.Options{Addr: redisServer.Addr()})
	defer rdb.Close()
	cfg, err := config.Parse("config.yaml", []byte(`
limits: { reports: { rate: 5/1s } }
jobs: { "report:": { limits: [reports], acquire: handler } }
`))
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	mux := asynq.NewServeMux()
	mux.HandleFunc("report:send", func(ctx context.Context, task *asynq.Task) error {
		fmt.Println("prepare the report, which takes a while")
		if err := asynqlimit.Acquire(ctx); err != nil {
			return err // perhaps the job parks, and comes back
		}
		fmt.Println("send it at once")
		stop() // the example ends here
		return nil
	})
	if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("report:send", nil)); err != nil {
		log.Fatal(err)
	}

	limits, err := asynqlimit.New(rdb, cfg, asynqlimit.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	srv := asynq.NewServerFromRedisClient(limits.Redis(), limits.Configure(asynq.Config{Concurrency: 1}))
	if err := limits.Serve(ctx, srv, mux); err != nil {
		log.Fatal(err)
	}
	// Output:
	// prepare the report, which takes a while
	// send it at once
}
