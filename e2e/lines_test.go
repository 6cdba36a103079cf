package e2e

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/strictapi"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// TestKilledWorkerHoldsUpNoOtherQueue: the only worker of a queue with 400 jobs
// parked is killed. The jobs of another queue have the limit for themselves, and
// those of the first go on when somebody serves their queue again.
func TestKilledWorkerHoldsUpNoOtherQueue(t *testing.T) {
	const parked, fresh, limit = 400, 200, 50
	api := strictapi.New(limit, time.Second)
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	addr := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close() })
	dir := t.TempDir()
	configOf := func(queue string) string {
		path := filepath.Join(dir, queue+".yaml")
		text := fmt.Sprintf(`
redis: { addrs: [%q] }
limits: { api: { rate: %d/1s, guard: 100ms } }
pools: [ { name: default, concurrency: 10, max_waiting: 5, queues: {%s: 1} } ]
jobs: { "http:request": { limits: [api] } }
http: { allow_hosts: [%q] }
`, addr, limit, queue, server.Listener.Addr())
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	enqueue := func(queue string, n int) {
		var lines strings.Builder
		for i := range n {
			fmt.Fprintf(&lines, `{"type":"http:request","id":"%s%d","queue":%q,"payload":{"url":"%s/?job=%s%d"}}`+"\n", queue, i, queue, server.URL, queue, i)
		}
		file := filepath.Join(dir, queue+".ndjson")
		if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := runToEnd(t, "enqueue", "--config", configOf(queue), "--file", file); got.status != 0 {
			t.Fatalf("enqueue: status %d\n%s%s", got.status, got.stdout, got.stderr)
		}
	}
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	queue := func(name string) *asynq.QueueInfo {
		info, err := inspector.GetQueueInfo(name)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	client, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	limiter, err := client.Limiter("api")
	if err != nil {
		t.Fatal(err)
	}

	first := startWorker(t, configOf("first"))
	startWorker(t, configOf("other"))
	if err := limiter.Pause(context.Background(), time.Hour); err != nil {
		t.Fatal(err)
	}
	enqueue("first", parked)
	testkit.Eventually(t, 20*time.Second, "all parked", func() bool { return queue("first").Retry == parked })
	if err := limiter.Resume(context.Background()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 5*time.Second, "the first go on", func() bool { return queue("first").Completed > limit })
	first.kill()
	enqueue("other", fresh)
	began := time.Now()
	testkit.Eventually(t, 20*time.Second, "the other queue done", func() bool { return queue("other").Completed == fresh },
		func() string { return fmt.Sprintf("%d of %d", queue("other").Completed, fresh) })
	took := time.Since(began)
	t.Logf("%d jobs beside %d of a worker that was killed took %v", fresh, parked-queue("first").Completed, took)
	if took > 6*time.Second { // 4.4 s; 8.8 s if they got half
		t.Errorf("%d jobs beside those of a worker that was killed took %v, want at most 6s", fresh, took)
	}
	startWorker(t, configOf("first"))
	// Those that were in the 10 slots and the room for 5 of the killed one come back later, by asynq's recoverer.
	testkit.Eventually(t, 20*time.Second, "the first go on", func() bool { return queue("first").Completed >= parked-15 },
		func() string { return fmt.Sprintf("%+v", *queue("first")) })
	if r := api.Report(); r.Peak > limit || r.Refused > 0 {
		t.Errorf("%d requests within a second, %d refused; the limit is %d", r.Peak, r.Refused, limit)
	}
}
