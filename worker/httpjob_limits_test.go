package worker

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/strictapi"
)

// limitedWorker runs a worker whose HTTP jobs may call api, within the limit.
func limitedWorker(t *testing.T, api *httptest.Server, limit config.Limit) (*Worker, *asynq.Inspector) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t), PoolSize: 40})
	t.Cleanup(func() { rdb.Close() })
	cfg := config.Default()
	cfg.HTTP.AllowHosts = []string{api.Listener.Addr().String()}
	cfg.Limits = map[string]config.Limit{"api": limit}
	cfg.Jobs = map[string]config.Job{HTTPTaskType: {Limits: []string{"api"}}}
	w, err := NewWithClient(cfg, zap.NewNop(), rdb)
	if err != nil {
		t.Fatal(err)
	}
	return w, asynq.NewInspectorFromRedisClient(rdb)
}

// runUntil runs the worker on the tasks until all of them are completed.
func runUntil(t *testing.T, w *Worker, inspector *asynq.Inspector, urls ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, url := range urls {
		task := asynq.NewTask(HTTPTaskType, []byte(`{"url":"`+url+`"}`))
		if _, err := asynq.NewClientFromRedisClient(w.rdb).EnqueueContext(ctx, task, asynq.TaskID(fmt.Sprint(i)), asynq.Retention(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	running, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- w.Run(running) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for completed := 0; completed < len(urls) && ctx.Err() == nil; <-tick.C {
		if info, err := inspector.GetQueueInfo("default"); err == nil {
			completed = info.Completed
		}
	}
	stop()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatal("the tasks are not completed in time")
	}
}

// With connections that take 150 ms, and each request redirected once: every
// request that arrives had a permit, and it was fresh.
func TestHTTPJobEveryRequestNeedsAPermit(t *testing.T) {
	const jobs, limit, interval = 12, 8, 500 * time.Millisecond
	strict := strictapi.New(limit, interval)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count := httptest.NewRecorder()
		if strict.ServeHTTP(count, r); count.Code == http.StatusOK && r.URL.Path == "/start" {
			http.Redirect(w, r, "/end?job=end", http.StatusFound)
			return
		}
		maps.Copy(w.Header(), count.Header())
		w.WriteHeader(count.Code)
	}))
	t.Cleanup(api.Close)
	w, inspector := limitedWorker(t, api, config.Limit{Rate: "8/500ms", Guard: config.Duration(100 * time.Millisecond)})
	dial := w.http.base.DialContext
	w.http.base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		<-time.After(150 * time.Millisecond)
		return dial(ctx, network, addr)
	}
	var urls []string
	for i := range jobs {
		urls = append(urls, fmt.Sprintf("%s/start?job=%d", api.URL, i))
	}
	runUntil(t, w, inspector, urls...)
	if r := strict.Report(); r.Requests != 2*jobs || r.Jobs["end"] != jobs || r.Refused != 0 || r.Peak > limit {
		t.Errorf("%d requests for %d jobs of 2, %d refused, at most %d in %v; the limit is %d", r.Requests, jobs, r.Refused, r.Peak, interval, limit)
	}
}

// A 429 that says when to come back costs no retry, and the API is left alone
// until then.
func TestHTTPJobComesBackAfter429(t *testing.T) {
	var first, second atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if first.CompareAndSwap(0, time.Now().UnixNano()) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		second.CompareAndSwap(0, time.Now().UnixNano())
	}))
	t.Cleanup(api.Close)
	w, inspector := limitedWorker(t, api, config.Limit{Rate: "100/1s"})
	runUntil(t, w, inspector, api.URL)
	if away := time.Duration(second.Load() - first.Load()); away < time.Second || away > 5*time.Second {
		t.Errorf("came back after %v, want the second that the API asked for", away)
	}
	info, err := inspector.GetTaskInfo("default", "0")
	if err != nil {
		t.Fatal(err)
	}
	if info.Retried != 0 {
		t.Errorf("%d retries used up", info.Retried)
	}
}
