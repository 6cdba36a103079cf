package worker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/worker"
)

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

type ctxKey struct{}

// TestOptions: a program that runs an asynq.Server hands its mux, middleware and
// hooks to a worker, and each goes on as before.
func TestOptions(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	defer rdb.Close()
	cfg, err := config.Parse("config.yaml", []byte(`
limits: { api: { rate: 5/1h } }
jobs: { "mail:": { limits: [api] }, "http:request": { limits: [api] }, "mial:send": { limits: [api] } }
pools: [ { name: main, concurrency: 5, queues: { default: 2, low: 1 } } ]
`))
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan string, 100)
	mux := asynq.NewServeMux()
	mux.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			ran <- "mux"
			return next.ProcessTask(ctx, task)
		})
	})
	mux.HandleFunc("mail:", func(ctx context.Context, task *asynq.Task) error {
		ran <- task.Type() + " " + ctx.Value(ctxKey{}).(string)
		switch task.Type() {
		case "mail:fails":
			return errors.New("no such mailbox")
		case "mail:skips":
			return errSkipped
		}
		return nil
	})
	mux.HandleFunc("http:request", func(context.Context, *asynq.Task) error { ran <- "their http:request"; return nil })
	var log lockedBuffer
	var failures, checks atomic.Int64
	w, err := worker.NewWith(cfg, worker.Options{
		Redis:        rdb,
		Slog:         slog.New(slog.NewTextHandler(&log, nil)),
		Handler:      mux,
		ErrorHandler: asynq.ErrorHandlerFunc(func(context.Context, *asynq.Task, error) { failures.Add(1) }),
		IsFailure:    func(err error) bool { return !errors.Is(err, errSkipped) },
		RetryDelay:   func(int, error, *asynq.Task) time.Duration { return time.Hour },
		BaseContext:  func() context.Context { return context.WithValue(context.Background(), ctxKey{}, "base") },
		HealthCheck:  func(error) { checks.Add(1) },
		Intervals:    worker.Intervals{HealthCheck: 20 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			ran <- "worker"
			return next.ProcessTask(ctx, task)
		})
	})
	w.HandleFunc("own", func(context.Context, *asynq.Task) error { ran <- "own"; return nil })
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	client := asynq.NewClientFromRedisClient(rdb)
	expect := func(typ string, want ...string) {
		t.Helper()
		if _, err := client.Enqueue(asynq.NewTask(typ, nil), asynq.TaskID(typ), asynq.MaxRetry(3)); err != nil {
			t.Fatal(err)
		}
		for _, want := range want {
			select {
			case got := <-ran:
				if got != want {
					t.Errorf("%s: %q ran, want %q", typ, got, want)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("%s: nothing ran where %q was expected; log:\n%s", typ, want, log.String())
			}
		}
	}
	expect("mail:send", "worker", "mux", "mail:send base")
	expect("http:request", "worker", "mux", "their http:request")
	expect("own", "worker", "own")
	expect("mail:fails", "worker", "mux", "mail:fails base")
	expect("mail:skips", "worker", "mux", "mail:skips base")
	expect("strange") // waits, and is told
	await(t, func() (bool, string) {
		ok := failures.Load() == 2 && checks.Load() > 0
		for _, want := range []string{"no such mailbox", "mial:send", "strange", "no_handler"} {
			ok = ok && strings.Contains(log.String(), want)
		}
		return ok, log.String()
	})
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	for typ, retried := range map[string]int{"mail:fails": 1, "mail:skips": 0, "strange": 0} {
		await(t, func() (bool, string) {
			info, err := inspector.GetTaskInfo("default", typ)
			if err != nil {
				t.Fatal(err)
			}
			ok := info.State == asynq.TaskStateRetry && info.Retried == retried
			if typ != "strange" {
				ok = ok && time.Until(info.NextProcessAt) > 50*time.Minute
			}
			return ok, info.State.String() + " " + info.LastErr
		})
	}
	limiter, _, err := w.Limiter("api")
	if err != nil {
		t.Fatal(err)
	}
	// Their http:request has its permit, although our handler would have acquired it itself.
	if left, err := limiter.AvailablePermits(t.Context()); err != nil || left != 1 {
		t.Errorf("%d of 5 permits left, %v; want 1: four jobs of mux have run", left, err)
	}
}

var errSkipped = errors.New("skipped")

func await(t *testing.T, condition func() (bool, string)) {
	t.Helper()
	timeout, poll := time.After(20*time.Second), time.NewTicker(20*time.Millisecond)
	defer poll.Stop()
	for {
		ok, state := condition()
		if ok {
			return
		}
		select {
		case <-timeout:
			t.Fatal(state)
		case <-poll.C:
		}
	}
}

// TestHandlerOfEverything: a handler that is no mux gets what the worker has no
// handler for.
func TestHandlerOfEverything(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	defer rdb.Close()
	ran := make(chan string, 10)
	w, err := worker.NewWith(config.Default(), worker.Options{Redis: rdb, Zap: zap.NewNop(),
		Handler: asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error { ran <- task.Type(); return nil })})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("any", nil)); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-ran:
		if got != "any" {
			t.Errorf("got %q", got)
		}
	case <-time.After(20 * time.Second):
		t.Error("it was not called")
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestNoLogger: a logger that is nil is no crash, two are a mistake.
func TestNoLogger(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	defer rdb.Close()
	for name, make := range map[string]func() (*worker.Worker, error){
		"New":           func() (*worker.Worker, error) { return worker.New(config.Default(), nil) },
		"NewWithClient": func() (*worker.Worker, error) { return worker.NewWithClient(config.Default(), nil, rdb) },
		"NewWith":       func() (*worker.Worker, error) { return worker.NewWith(config.Default(), worker.Options{Redis: rdb}) },
	} {
		w, err := make()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ctx, stop := context.WithCancel(context.Background())
		stop()
		if err := w.Run(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := worker.NewWith(config.Default(), worker.Options{Slog: slog.Default(), Zap: zap.NewNop()}); err == nil {
		t.Error("two loggers are no mistake")
	}
	if _, err := worker.NewWith(nil, worker.Options{}); err == nil {
		t.Error("no configuration is no mistake")
	}
}
