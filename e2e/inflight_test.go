package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// counter is an API that counts how many requests it has at a time, in all and of
// each account.
type counter struct {
	lasts time.Duration

	mu        sync.Mutex
	now, most map[string]int
	requests  int
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	account := r.URL.Query().Get("account")
	c.mu.Lock()
	c.requests++
	for _, name := range []string{"", account} {
		c.now[name]++
		c.most[name] = max(c.most[name], c.now[name])
	}
	c.mu.Unlock()
	select {
	case <-time.After(c.lasts):
	case <-r.Context().Done(): // its worker is gone
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[""]--
	c.now[account]--
}

func (c *counter) seen() (requests, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests, c.most[""]
}

// enqueueFile enqueues jobs with a configuration, and returns where that is.
func enqueueFile(t *testing.T, text, lines string) (config string) {
	t.Helper()
	dir := t.TempDir()
	config, file := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "jobs.ndjson")
	for path, content := range map[string]string{config: text, file: lines} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := runToEnd(t, "enqueue", "--config", config, "--file", file); got.status != 0 {
		t.Fatalf("enqueue: status %d\n%s%s", got.status, got.stdout, got.stderr)
	}
	return config
}

// TestInFlightWorkers: 300 HTTP jobs of 200 ms, 7 at a time and 2 of each of 20 accounts,
// on three workers of 20 slots, one of which is killed. The API never has more; all jobs
// that the killed worker did not run are done, and nightly its own, too, as asynq brings
// them back.
func TestInFlightWorkers(t *testing.T) {
	const jobs = 300
	api := &counter{lasts: 200 * time.Millisecond, now: map[string]int{}, most: map[string]int{}}
	server := httptest.NewServer(api)
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	addr := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	text := fmt.Sprintf(`
redis: { addrs: [%q] }
limits:
  all: { in_flight: 7 }
  account: { in_flight: 2, key: payload.body }
pools: [ { name: default, concurrency: 20 } ]
jobs: { "http:request": { limits: [all, account] } }
http: { allow_hosts: [%q] }
`, addr, u.Host)
	var lines strings.Builder
	for i := range jobs {
		fmt.Fprintf(&lines, `{"type":"http:request","id":%q,"payload":{"method":"POST","url":"%s/?account=%d","body":"%d"}}`+"\n",
			jobName(i), server.URL, i%20, i%20)
	}
	config := enqueueFile(t, text, lines.String())
	workers := []*worker{startWorker(t, config), startWorker(t, config), startWorker(t, config)}
	state := func() string {
		info, err := inspector.GetQueueInfo("default")
		requests, most := api.seen()
		return fmt.Sprintf("%+v, %v; %d requests, at most %d at a time", info, err, requests, most)
	}
	testkit.Eventually(t, time.Minute, "a third of the jobs", func() bool { n, _ := api.seen(); return n >= jobs/3 }, state)
	if got := runToEnd(t, "throttle", "--redis", addr, "holders", "all"); got.status != 0 || !strings.Contains(got.stdout, "of 7 slots are taken") || !strings.Contains(got.stdout, "default/job-") {
		t.Errorf("throttle holders: status %d\n%s%s", got.status, got.stdout, got.stderr)
	}
	workers[0].kill()
	within, want := time.Minute, jobs-20
	if nightly() {
		within, want = 4*time.Minute, jobs
	}
	testkit.Eventually(t, within, "all jobs", func() bool {
		info, err := inspector.GetQueueInfo("default")
		return err == nil && info.Completed >= want && (nightly() || info.Pending+info.Retry == 0)
	}, state)
	api.mu.Lock()
	defer api.mu.Unlock()
	for account, most := range api.most {
		limit := 2
		if account == "" {
			limit = 7
		}
		if most > limit {
			t.Errorf("account %q: the API had %d at a time, the limit is %d", account, most, limit)
		}
	}
	t.Logf("%d requests, at most %d at a time", api.requests, api.most[""])
}
