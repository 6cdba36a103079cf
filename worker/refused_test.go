package worker

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestOneURLThatIsAlwaysRefused: one job's own URL always answers 429. The other
// 200, at 20 in a second, take little longer than without it.
func TestOneURLThatIsAlwaysRefused(t *testing.T) {
	measures(t)
	const others = 200
	var mu sync.Mutex
	var refused []time.Time
	done := map[string]time.Time{}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == "/bad" {
			refused = append(refused, time.Now())
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		done[r.URL.Path] = time.Now()
	}))
	t.Cleanup(api.Close)
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t), PoolSize: 40})
	t.Cleanup(func() { rdb.Close() })
	client, inspector := asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
	cfg := config.Default()
	cfg.HTTP.AllowHosts = []string{api.Listener.Addr().String()}
	cfg.Limits = map[string]config.Limit{"api": {Rate: "20/1s"}}
	cfg.Jobs = map[string]config.Job{HTTPTaskType: {Limits: []string{"api"}}}
	enqueue := func(id string) {
		t.Helper()
		task := asynq.NewTask(HTTPTaskType, fmt.Appendf(nil, `{"url":"%s/%s"}`, api.URL, id))
		if _, err := client.Enqueue(task, asynq.TaskID(id), asynq.MaxRetry(3)); err != nil {
			t.Fatal(err)
		}
	}
	enqueue("bad")
	for i := range others {
		enqueue(fmt.Sprint(i))
	}
	w, err := NewWithClient(cfg, zap.NewNop(), rdb)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	began := time.Now()
	go func() { stopped <- w.Run(ctx) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for finished := false; !finished && time.Since(began) < 40*time.Second; <-tick.C {
		mu.Lock()
		finished = len(done) == others
		mu.Unlock()
	}
	cancel()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	took := time.Since(began)
	t.Logf("%d jobs took %v, beside one that was refused %d times", len(done), took, len(refused))
	if len(done) != others || took > 13*time.Second {
		t.Errorf("%d of %d jobs took %v beside one that is refused, want at most 13s", len(done), others, took)
	}
	if info, err := inspector.GetTaskInfo("default", "bad"); err != nil || info.Retried != 0 {
		t.Errorf("%+v, %v: want the refused job there, with no retry used up", info, err)
	}
	for i := 2; i < min(len(refused), 5); i++ {
		if away := refused[i].Sub(refused[i-1]); away < time.Second<<(i-1) {
			t.Errorf("after refusal %d it stayed away for %v, want %v at least", i, away, time.Second<<(i-1))
		}
	}
}

// TestRefusedAgain: a handler's first RetryAfter stops the limit, its next ones
// only the job, unless another job was refused meanwhile.
func TestRefusedAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { api: { rate: 100/1s } }
pools: [ { name: default, concurrency: 5 } ]
jobs: { "x:": { limits: [api], max_pause: 3s } }
log: { level: warn }
`)
	const after = time.Second
	f.work(func(_ context.Context, task *asynq.Task) error {
		if task.Type() == "x:refused" {
			return fmt.Errorf("answered: %w", RetryAfter(after))
		}
		return nil
	})
	paused := func() time.Duration {
		t.Helper()
		return f.usage("api").Paused
	}
	// refusal is when the job was refused for the n-th time, once that is noted.
	refusal := func(id string, n int) time.Time {
		t.Helper()
		f.awaitStartsIn(id, n, 10*time.Second)
		f.awaitState(id, asynq.TaskStateRetry)
		return f.startsIn(id)[n-1].at
	}
	f.enqueue("x:refused", "bad", asynq.MaxRetry(3))
	times := []time.Time{refusal("bad", 1)}
	if p := paused(); p < after/2 || p > after {
		t.Errorf("the first refusal pauses the limit for %v, want %v", p, after)
	}
	for n := 2; n <= 4; n++ {
		times = append(times, refusal("bad", n))
		if p := paused(); p > 0 {
			t.Errorf("refusal %d of the same job pauses the limit for %v, want no pause", n, p)
		}
		id := fmt.Sprint("good", n)
		f.enqueue("x:good", id)
		f.awaitStartsIn(id, 1, 5*time.Second)
		if d := f.startsIn(id)[0].at.Sub(times[n-1]); d > after {
			t.Errorf("after refusal %d another job waited %v", n, d)
		}
	}
	for i, want := range []time.Duration{after, 2 * after, 3 * after} { // max_pause
		if d := times[i+1].Sub(times[i]); d < want || d > want+5*time.Second/2 {
			t.Errorf("after refusal %d it came back in %v, want %v", i+1, d, want)
		}
	}
	f.enqueue("x:refused", "worse", asynq.MaxRetry(3))
	if refusal("worse", 1); paused() == 0 {
		t.Error("the first refusal of another job does not pause the limit")
	}
	f.awaitThat(5*time.Second, func() (bool, string) { return paused() == 0, "still paused" })
	if refusal("bad", 5); paused() == 0 {
		t.Error("a refusal does not pause the limit although another job was refused meanwhile")
	}
	if info := f.awaitState("bad", asynq.TaskStateRetry); info.Retried != 0 {
		t.Errorf("%d retries used up", info.Retried)
	}
}

// TestRefusedByPreset: an API that puts a job off in its own way uses up no retry, also on the last attempt.
func TestRefusedByPreset(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(h http.Header) int{
		"shopify": func(h http.Header) int { // an outage, with a time as only Shopify writes it
			h.Set("Retry-After", "0.5")
			return http.StatusServiceUnavailable
		},
		"slack": func(h http.Header) int {
			h.Set("Retry-After", "1")
			return http.StatusTooManyRequests
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1) == 1 {
					w.WriteHeader(answer(w.Header()))
				}
			}))
			t.Cleanup(api.Close)
			rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
			t.Cleanup(func() { rdb.Close() })
			cfg := config.Default()
			cfg.HTTP.AllowHosts = []string{api.Listener.Addr().String()}
			cfg.Limits = map[string]config.Limit{"api": {Rate: "100/1s", Preset: name}}
			cfg.Jobs = map[string]config.Job{HTTPTaskType: {Limits: []string{"api"}}}
			task := asynq.NewTask(HTTPTaskType, fmt.Appendf(nil, `{"url":%q}`, api.URL))
			if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(task, asynq.TaskID("job"), asynq.MaxRetry(0), asynq.Retention(time.Hour)); err != nil {
				t.Fatal(err)
			}
			w, err := NewWithClient(cfg, zap.NewNop(), rdb)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			stopped := make(chan error, 1)
			go func() { stopped <- w.Run(ctx) }()
			inspector := asynq.NewInspectorFromRedisClient(rdb)
			var info *asynq.TaskInfo
			for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
				if info, err = inspector.GetTaskInfo("default", "job"); err != nil || info.State == asynq.TaskStateCompleted || info.State == asynq.TaskStateArchived {
					break
				}
			}
			cancel()
			if err := <-stopped; err != nil {
				t.Error(err)
			}
			if err != nil || info.State != asynq.TaskStateCompleted || info.Retried != 0 || asked.Load() != 2 {
				t.Errorf("%+v, %v after %d requests, want it done after 2", info, err, asked.Load())
			}
		})
	}
}
