package worker

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/embedded"
)

func newTestHTTPJob(t *testing.T, cfg *config.Config) *httpJob {
	t.Helper()
	job, err := newHTTPJob(cfg, nil, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(job.close)
	return job
}

// withoutLimits is the context of a task that no limit concerns.
func withoutLimits(ctx context.Context) context.Context {
	return asynqlimit.Unlimited(ctx)
}

// jobRunner runs one job in an asynq server, for what a handler only gets from asynq: the
// task's id, and a writer for its result.
type jobRunner struct {
	rdb       *redis.Client
	client    *asynq.Client
	inspector *asynq.Inspector
	returned  chan error
}

func runHTTPJob(t *testing.T, job *httpJob) *jobRunner {
	t.Helper()
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { rdb.Close() })
	r := &jobRunner{
		rdb:       rdb,
		client:    asynq.NewClientFromRedisClient(rdb),
		inspector: asynq.NewInspectorFromRedisClient(rdb),
		returned:  make(chan error, 1),
	}
	srv := asynq.NewServerFromRedisClient(rdb, asynq.Config{Concurrency: 1, TaskCheckInterval: 5 * time.Millisecond, LogLevel: asynq.FatalLevel})
	err = srv.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		err := job.ProcessTask(withoutLimits(ctx), task)
		r.returned <- err
		return err
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Shutdown)
	return r
}

// do runs one task and returns the result it has left and its error.
func (r *jobRunner) do(t *testing.T, id string, payload HTTPRequest) (*HTTPResult, error) {
	t.Helper()
	b, err := json.Marshal(payload)
	if err != nil {
		t.Fatal(err)
	}
	opts := []asynq.Option{asynq.TaskID(id), asynq.MaxRetry(0), asynq.Retention(time.Hour)}
	if _, err := r.client.EnqueueContext(t.Context(), asynq.NewTask(HTTPTaskType, b), opts...); err != nil {
		t.Fatal(err)
	}
	err = <-r.returned
	info, ierr := r.inspector.GetTaskInfo("default", id)
	if ierr != nil {
		t.Fatal(ierr)
	}
	if len(info.Result) == 0 {
		return nil, err
	}
	var result HTTPResult
	if err := json.Unmarshal(info.Result, &result); err != nil {
		t.Fatal(err)
	}
	return &result, err
}

// serveAPI starts an API and returns its URL and a job that may call it.
func serveAPI(t *testing.T, h http.HandlerFunc) (string, *httpJob) {
	t.Helper()
	api := httptest.NewServer(h)
	t.Cleanup(api.Close)
	cfg := config.Default()
	cfg.HTTP.AllowHosts = []string{api.Listener.Addr().String()}
	return api.URL, newTestHTTPJob(t, cfg)
}

// perform runs a task without asynq. It suits answers that leave no result.
func perform(t *testing.T, job *httpJob, payload HTTPRequest) error {
	t.Helper()
	b, err := json.Marshal(payload)
	if err != nil {
		t.Fatal(err)
	}
	return job.ProcessTask(withoutLimits(t.Context()), asynq.NewTask(HTTPTaskType, b))
}
