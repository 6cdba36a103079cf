package line

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a client that records which scripts asynq's server calls.
type recorder struct {
	redis.UniversalClient
	mu    sync.Mutex
	calls []Call
	odd   [][]string      // keys of unknown scripts
	texts map[string]Step // of the scripts that were sent whole
}

func (r *recorder) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	c := Recognize(keys, args)
	r.mu.Lock()
	r.calls = append(r.calls, c)
	if c.Step == Unknown {
		r.odd = append(r.odd, keys)
	}
	r.mu.Unlock()
	return r.UniversalClient.EvalSha(ctx, sha1, keys, args...)
}

func (r *recorder) Eval(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	r.mu.Lock()
	r.texts[text] = Recognize(keys, args).Step
	r.mu.Unlock()
	return r.UniversalClient.Eval(ctx, text, keys, args...)
}

func (r *recorder) seen(step Step, id string) (found []Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		if c.Step == step && c.ID == id && c.Queue == "odd :q%" {
			found = append(found, c)
		}
	}
	return found
}

// TestScriptsOfAsynq pins the shapes of asynq's scripts: a server of the asynq version that
// go.mod names takes tasks through everything that can become of them, and each script is known.
func TestScriptsOfAsynq(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer rdb.Close()
	r := &recorder{UniversalClient: rdb, texts: map[string]Step{}}
	const queue = "odd :q%"
	client := asynq.NewClientFromRedisClient(rdb)
	started := make(chan struct{}, 1)
	srv := asynq.NewServerFromRedisClient(r, asynq.Config{
		Concurrency: 20, Queues: map[string]int{queue: 1}, TaskCheckInterval: 10 * time.Millisecond, ShutdownTimeout: 10 * time.Millisecond,
		DelayedTaskCheckInterval: 10 * time.Millisecond, JanitorInterval: 10 * time.Millisecond, LogLevel: asynq.FatalLevel,
		IsFailure:       func(err error) bool { return err.Error() != "put off" },
		GroupAggregator: asynq.GroupAggregatorFunc(func(string, []*asynq.Task) *asynq.Task { return asynq.NewTask("done", nil) }), GroupGracePeriod: time.Second,
	})
	mux := asynq.NewServeMux()
	mux.HandleFunc("done", func(context.Context, *asynq.Task) error { return nil })
	mux.HandleFunc("fails", func(context.Context, *asynq.Task) error { return errors.New("fails") })
	mux.HandleFunc("put", func(context.Context, *asynq.Task) error { return errors.New("put off") })
	mux.HandleFunc("stays", func(ctx context.Context, _ *asynq.Task) error { started <- struct{}{}; <-ctx.Done(); return ctx.Err() })
	enqueue := func(typ, id string, opts ...asynq.Option) {
		t.Helper()
		if _, err := client.Enqueue(asynq.NewTask(typ, []byte(id)), append(opts, asynq.TaskID(id), asynq.Queue(queue))...); err != nil {
			t.Fatal(err)
		}
	}
	enqueue("done", "plain:active")
	enqueue("done", "unique", asynq.Unique(time.Hour))
	enqueue("done", "kept", asynq.Retention(time.Hour))
	enqueue("done", "kept unique", asynq.Retention(time.Hour), asynq.Unique(time.Hour))
	enqueue("fails", "failed", asynq.MaxRetry(3))
	enqueue("put", "put off", asynq.MaxRetry(3))
	enqueue("fails", "archived", asynq.MaxRetry(0), asynq.Unique(time.Hour))
	enqueue("done", "grouped", asynq.Group("g"))
	enqueue("stays", "running")
	if err := srv.Start(mux); err != nil {
		t.Fatal(err)
	}
	<-started
	want := []struct {
		step Step
		id   string
	}{{Dequeue, ""}, {Done, "plain:active"}, {Done, "unique"}, {Done, "kept"}, {Done, "kept unique"}, {Retry, "failed"}, {Retry, "put off"}, {Archive, "archived"}}
	deadline := time.Now().Add(10 * time.Second)
	for _, w := range want {
		for len(r.seen(w.step, w.id)) == 0 {
			if time.Now().After(deadline) {
				t.Fatalf("step %d of %q was not recognized", w.step, w.id)
			}
			<-time.After(5 * time.Millisecond)
		}
	}
	srv.Shutdown()
	if len(r.seen(Requeue, "running")) == 0 {
		t.Error("the requeue of a running task was not recognized")
	}
	if c := r.seen(Retry, "failed")[0]; !c.Failure || c.Message == nil {
		t.Errorf("a failure: %+v", c)
	}
	if c := r.seen(Retry, "put off")[0]; c.Failure || c.Message == nil {
		t.Errorf("no failure: %+v", c)
	}
	if len(r.odd) > 0 {
		t.Errorf("not known: %q", r.odd)
	}
	ends := map[Step]int{}
	for text, step := range r.texts {
		if step != Done && step != Retry && step != Archive && step != Requeue {
			continue
		}
		ends[step]++
		if after := OfAttempt(text); strings.Count(after, `(ours() and`) != 1 || strings.Contains(after, ", 0, ARGV[1])") || strings.Count(text, "#ARGV") > 0 {
			t.Errorf("a script that ends an attempt may end another: %s", after)
		}
	}
	if want := map[Step]int{Done: 4, Retry: 1, Archive: 1, Requeue: 1}; !maps.Equal(ends, want) { // done: plain, unique, kept, and both
		t.Errorf("%v scripts end an attempt, by step, want %v", ends, want)
	}
}

// TestUnknownScripts: a script that moves an active task and has no known shape is Unknown. A
// script that does not move one is Other.
func TestUnknownScripts(t *testing.T) {
	prefix := "asynq:{q}:"
	for _, tt := range []struct {
		keys []string
		args []any
		want Step
	}{
		{nil, nil, Other},
		{[]string{"other"}, nil, Other},
		{[]string{prefix + "retry", prefix + "pending"}, []any{1, 2, 3, 4}, Other},
		{[]string{prefix + "lease"}, []any{1, 2}, Other},
		{[]string{prefix + "t:id", prefix + "active", prefix + "lease", prefix + "retry", prefix + "new"}, []any{"id"}, Unknown},
		{[]string{prefix + "t:other", prefix + "active", prefix + "lease", prefix + "retry", "", "", "", ""}, []any{"id", "", 1, 2, true, 3}, Unknown},
		{[]string{prefix + "t:id", prefix + "active", prefix + "lease", prefix + "retry", "", "", "", ""}, []any{"id", "", 1, 2, true, 3}, Retry},
	} {
		if got := Recognize(tt.keys, tt.args); got.Step != tt.want {
			t.Errorf("%s: step %d, want %d", fmt.Sprint(tt.keys), got.Step, tt.want)
		}
	}
}

// TestRecoveredOnce: two processes find that the lease of a task that waits has lapsed. The first
// gives the task back. The one that comes late finds a lease that has not lapsed, or that has lapsed
// just now, because the process that has the task is late to extend it. Then it leaves the task alone.
func TestRecoveredOnce(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	t.Cleanup(func() { rdb.Close() })
	ctx, lines := t.Context(), New(rdb)
	if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("x", nil), asynq.TaskID("1")); err != nil {
		t.Fatal(err)
	}
	take := func(ends time.Duration) {
		t.Helper()
		if tasks, err := lines.Take(ctx, "default", time.Now().Add(ends).Unix(), 1, false); err != nil || len(tasks) != 1 {
			t.Fatalf("%v, %v", tasks, err)
		}
	}
	for _, lasts := range []time.Duration{30 * time.Second, -10 * time.Second} {
		take(-time.Minute)
		if ok, err := lines.GiveBackListed(ctx, "default", "1"); !ok || err != nil {
			t.Fatalf("the first: %v, %v", ok, err)
		}
		take(lasts)
		if ok, err := lines.GiveBackListed(ctx, "default", "1"); ok || !errors.Is(err, ErrNotActive) {
			t.Errorf("one who comes late, to a lease that lasts for another %v: %v, %v", lasts, ok, err)
		}
		if n := rdb.LLen(ctx, "asynq:{default}:active").Val(); n != 1 {
			t.Fatalf("%d are active, want the one that was taken again", n)
		}
		if err := lines.GiveBack(ctx, "default", "1", Parking{}); err != nil {
			t.Fatal(err)
		}
	}
}
