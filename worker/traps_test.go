package worker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
)

// asynq calls its ErrorHandler for tasks that are only put off, and warns of
// tasks that go on as a copy: neither is anything to log.
func TestPutOffTasksMakeNoNoise(t *testing.T) {
	t.Parallel()
	f := newFleet(t, tenPerSecond)
	for i := range 30 {
		f.enqueue("x:limited", fmt.Sprint(i), asynq.MaxRetry(i%2))
	}
	stop := f.work(nil)
	f.await(30, 10*time.Second)
	f.awaitIdle("default", 0)
	logged := f.logged.All() // until it drains, which it says
	stop()
	if f.putOff() == 0 {
		t.Error("nothing was put off")
	}
	for _, line := range logged {
		if line.Level >= zap.InfoLevel {
			t.Errorf("logged: %s %s %v", line.Level, line.Message, line.ContextMap())
		}
	}
}

// asynq ends a task's context when its time is over, and does not wait for the
// handler: what the API says to it then still pauses the fleet.
func TestPauseAfterTheDeadline(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { api: { rate: 100/1s } }
jobs: { "x:": { limits: [api], max_pause: 1h } }
log: { level: error }
`)
	f.enqueue("x:slow", "slow", asynq.Timeout(time.Second), asynq.MaxRetry(5))
	f.work(func(ctx context.Context, _ *asynq.Task) error {
		<-ctx.Done()
		return RetryAfter(time.Hour)
	})
	f.awaitThat(10*time.Second, func() (bool, string) {
		if len(f.seen()) == 0 {
			return false, "nothing started"
		}
		u := f.usage("api")
		return u.Paused > 59*time.Minute, fmt.Sprintf("paused for %v", u.Paused)
	})
}

// asynq.Server and asynq.Client treat a Redis client that is shared in
// different ways; a worker leaves it open.
func TestSharedRedisClientStaysOpen(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "log: { level: warn }\n")
	cfg, err := config.Parse("config.yaml", []byte(f.yaml))
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWithClient(cfg, f.log, f.rdb)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.HandleFunc("x", func(context.Context, *asynq.Task) error { cancel(); return nil })
	f.enqueue("x", "a")
	if err := w.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := f.rdb.Ping(t.Context()).Err(); err != nil {
		t.Errorf("after Run: %v", err)
	}
}
