package jobview_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/secrets"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// endless is a hook that notes the commands whose context has no end.
type endless struct {
	mu   sync.Mutex
	cmds []string
}

func (e *endless) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (e *endless) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		e.note(ctx, cmd)
		return next(ctx, cmd)
	}
}

func (e *endless) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		e.note(ctx, cmds...)
		return next(ctx, cmds)
	}
}

func (e *endless) note(ctx context.Context, cmds ...redis.Cmder) {
	if _, ends := ctx.Deadline(); ends {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, cmd := range cmds {
		e.cmds = append(e.cmds, cmd.Name())
	}
}

// TestEachCallEnds: whatever an operator asks for, each call to Redis ends with the request, also those that asynq makes.
func TestEachCallEnds(t *testing.T) {
	addr := redistest.Start(t)
	workers := redis.NewClient(&redis.Options{Addr: addr})
	defer workers.Close()
	client := asynq.NewClientFromRedisClient(workers)
	for _, id := range []string{"runs", "waits"} {
		if _, err := client.Enqueue(asynq.NewTask("x", nil), asynq.TaskID(id)); err != nil {
			t.Fatal(err)
		}
	}
	srv := asynq.NewServerFromRedisClient(workers, asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel})
	started, end := make(chan struct{}, 2), make(chan struct{})
	if err := srv.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		started <- struct{}{}
		<-end
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	defer srv.Shutdown()
	defer close(end)
	<-started

	calls := &endless{}
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	rdb.AddHook(calls)
	i := jobview.NewInspector(rdb)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	testkit.Eventually(t, 15*time.Second, "who runs the job", func() bool { // a server tells of itself every few seconds
		e, err := i.Explain(ctx, "runs", "")
		if err != nil {
			t.Fatal(err)
		}
		return e.Worker != ""
	})
	for name, ask := range map[string]func() error{
		"detail":  func() error { _, err := i.Detail(ctx, "waits", "", secrets.New(nil)); return err },
		"pause":   func() error { return i.PauseQueue(ctx, "default", true) },
		"unpause": func() error { return i.PauseQueue(ctx, "default", false) },
		"lines":   func() error { _, err := i.Lines(ctx); return err },
		"jobs":    func() error { _, err := i.Jobs(ctx, jobview.JobQuery{State: jobview.Waiting}); return err },
		"workers": func() error { _, err := i.Workers(ctx); return err },
		"past":    func() error { _, err := i.Past(ctx); return err },
	} {
		if err := ask(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(calls.cmds) > 0 {
		t.Errorf("calls without an end: %v", calls.cmds)
	}
}
