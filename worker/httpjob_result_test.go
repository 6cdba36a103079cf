package worker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestHTTPJobResultWaitsForRedis: Redis goes away for some seconds while the API answers. The request is
// sent once, and the job is done, with its result.
func TestHTTPJobResultWaitsForRedis(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, "--appendonly", "yes", "--appendfsync", "always")
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { rdb.Close() })
	var requests atomic.Int32
	away := make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			server.Stop()
			close(away)
		}
		fmt.Fprint(w, "answer")
	}))
	t.Cleanup(api.Close)
	f := &fleet{t: t, rdb: rdb, client: asynq.NewClientFromRedisClient(rdb), inspector: asynq.NewInspectorFromRedisClient(rdb)}
	cfg, err := config.Parse("config.yaml", fmt.Appendf(nil, "redis: { addrs: [%q] }\nhttp: { allow_hosts: [%q] }\n", server.Addr, api.Listener.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	task := asynq.NewTask(HTTPTaskType, []byte(`{"url":"`+api.URL+`"}`))
	if _, err := f.client.Enqueue(task, asynq.TaskID("job"), asynq.MaxRetry(0), asynq.Retention(time.Hour)); err != nil {
		t.Fatal(err)
	}
	f.run(w)
	<-away
	<-time.After(5 * time.Second)
	server.Restart()
	info := f.awaitState("job", asynq.TaskStateCompleted)
	if n := requests.Load(); n != 1 || info.Retried != 0 || !strings.Contains(string(info.Result), "answer") {
		t.Errorf("%d requests, %d retries, result %q; want one request and its answer", n, info.Retried, info.Result)
	}
}

// TestHTTPJobResultIsRefused: Redis will never take the result. The job does not hold its slot for that.
func TestHTTPJobResultIsRefused(t *testing.T) {
	var runner *jobRunner
	url, job := serveAPI(t, func(http.ResponseWriter, *http.Request) {
		if err := runner.rdb.Set(t.Context(), "asynq:{default}:t:job", "no hash", 0).Err(); err != nil {
			t.Error(err)
		}
	})
	runner = runHTTPJob(t, job)
	if _, err := runner.client.Enqueue(asynq.NewTask(HTTPTaskType, []byte(`{"url":"`+url+`"}`)), asynq.TaskID("job")); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err := <-runner.returned
	if took := time.Since(began); !redis.HasErrorPrefix(err, "WRONGTYPE") || took > storeTimeout/2 {
		t.Errorf("%v after %v, want Redis's error at once", err, took)
	}
}
