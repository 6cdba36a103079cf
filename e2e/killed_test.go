package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// TestKilledOnTheOnlyAttempt: a worker is killed in which one job has sent its request, and others wait. None of them has a
// retry. Those that waited run in the next worker. The other has failed, and is not sent again.
func TestKilledOnTheOnlyAttempt(t *testing.T) {
	const waiting = 5
	var mu sync.Mutex
	asked := map[string]int{}
	requests := func(id string) int {
		mu.Lock()
		defer mu.Unlock()
		return asked[id]
	}
	over := make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		id := r.URL.Query().Get("job")
		mu.Lock()
		asked[id]++
		mu.Unlock()
		if id == "runs" {
			<-over
		}
	}))
	t.Cleanup(api.Close)
	t.Cleanup(func() { close(over) })
	s := siteFor(t, plan{hold: "10m"}, nil, api.URL)
	rdb := redis.NewClient(&redis.Options{Addr: s.redis})
	t.Cleanup(func() { rdb.Close() })
	line := func(id string) string {
		return fmt.Sprintf(`{"type":"http:request","id":%q,"max_retry":0,"payload":{"url":"%s/?job=%s"}}`, id, s.url, id)
	}
	throttle := func(args ...string) {
		t.Helper()
		if got := runToEnd(t, "throttle", append([]string{"--config", s.config}, args...)...); got.status != 0 {
			t.Fatalf("throttle: status %d\n%s%s", got.status, got.stdout, got.stderr)
		}
	}

	s.enqueueLines(1, func(int) string { return line("runs") })
	victim := s.startWorker()
	testkit.Eventually(t, 20*time.Second, "the first job has sent its request", func() bool { return requests("runs") == 1 }, s.state)
	throttle("pause", "api", "1m")
	s.enqueueLines(waiting, func(i int) string { return line(jobName(i)) })
	testkit.Eventually(t, 20*time.Second, "the others wait in the worker", func() bool {
		return rdb.SCard(t.Context(), "asynq:{default}:jt:room").Val() == waiting
	}, s.state)
	victim.kill()
	// asynq's recoverer searches when it starts for leases that ended 30s ago.
	const lease = "asynq:{default}:lease"
	for _, id := range rdb.ZRange(t.Context(), lease, 0, -1).Val() {
		rdb.ZAdd(t.Context(), lease, redis.Z{Member: id, Score: float64(time.Now().Add(-time.Hour).Unix())})
	}
	throttle("resume", "api")
	survivor := s.startWorker()
	testkit.Eventually(t, 30*time.Second, "all jobs done or archived", func() bool {
		q := s.queue()
		return q.Completed == waiting && q.Archived == 1
	}, s.state)
	s.stop(survivor)
	if ids := s.archived(); !slices.Equal(ids, []string{"runs"}) || requests("runs") != 1 {
		t.Errorf("archived: %v, after %d requests of the one that ran, want that one, after one", ids, requests("runs"))
	}
	for i := range waiting {
		info, err := s.inspector.GetTaskInfo("default", jobName(i))
		if err != nil {
			t.Fatal(err)
		}
		if info.State != asynq.TaskStateCompleted || info.Retried != 0 || info.MaxRetry != 0 || requests(jobName(i)) != 1 {
			t.Errorf("%s: %v after %d of %d retries and %d requests", jobName(i), info.State, info.Retried, info.MaxRetry, requests(jobName(i)))
		}
	}
}
