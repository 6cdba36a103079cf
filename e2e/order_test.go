package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// sequence is an API of customers whose orders have to come one at a time, and in order.
// A tenth of them fail at first.
type sequence struct {
	mu     sync.Mutex
	now    map[string]int
	done   map[string]int // orders of a customer that were served
	failed map[string]bool
	killed bool // a worker was: what it had under way comes again
	again  int
	wrong  []string
}

func (s *sequence) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	customer := r.URL.Query().Get("customer")
	var n int
	_, _ = fmt.Sscan(r.URL.Query().Get("n"), &n)
	s.mu.Lock()
	if s.now[customer]++; s.now[customer] > 1 {
		s.wrong = append(s.wrong, fmt.Sprintf("customer %s: %d orders at a time", customer, s.now[customer]))
	}
	again := s.killed && n == s.done[customer]-1
	if again {
		s.again++
	} else if n != s.done[customer] {
		s.wrong = append(s.wrong, fmt.Sprintf("customer %s: order %d came when %d were done", customer, n, s.done[customer]))
	}
	key := fmt.Sprint(customer, "/", n)
	fails := n%10 == 3 && !s.failed[key]
	s.failed[key] = s.failed[key] || fails
	s.mu.Unlock()
	time.Sleep(3 * time.Millisecond) // the work
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now[customer]--
	if fails {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if !again {
		s.done[customer]++
	}
}

// TestOrdersOfCustomers: in_flight 1 for each of 50 customers, 40 HTTP jobs of each, a tenth of
// which fail once, three workers. The API gets the jobs of each customer in the order in which
// they were enqueued, one at a time, and a retry keeps its position. throttle explain tells
// which job another one waits for. The nightly run also kills a worker: what it was running
// comes again.
func TestOrdersOfCustomers(t *testing.T) {
	const customers, each = 50, 40
	api := &sequence{now: map[string]int{}, done: map[string]int{}, failed: map[string]bool{}}
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
  customer: { in_flight: 1, key: payload.body, lease: 3s }
pools: [ { name: default, concurrency: 20 } ]
jobs: { "http:request": { limits: [customer] } }
http: { allow_hosts: [%q] }
`, addr, u.Host)
	var lines strings.Builder
	for n := range each {
		for c := range customers {
			fmt.Fprintf(&lines, `{"type":"http:request","id":"c%d-%d","payload":{"method":"POST","url":"%s/?customer=%d&n=%d","body":"%d"}}`+"\n", c, n, server.URL, c, n, c)
		}
	}
	config := enqueueFile(t, text, lines.String())
	workers := []*worker{startWorker(t, config), startWorker(t, config), startWorker(t, config)}
	done := func() (n int) {
		api.mu.Lock()
		defer api.mu.Unlock()
		for _, d := range api.done {
			n += d
		}
		return n
	}
	state := func() string {
		info, err := inspector.GetQueueInfo("default")
		return fmt.Sprintf("%+v, %v; %d done", info, err, done())
	}
	// failed are the jobs that the API has answered with an error, and that wait to be retried.
	failed := func() (ids []string) {
		tasks, err := inspector.ListRetryTasks("default", asynq.PageSize(5000))
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			if strings.Contains(task.LastErr, "500") {
				ids = append(ids, task.ID)
			}
		}
		return ids
	}
	testkit.Eventually(t, time.Minute, "a failed order of each customer, and nothing beside them", func() bool {
		next, err := inspector.GetTaskInfo("default", "c7-4") // it waits in a worker at first
		return err == nil && next.State == asynq.TaskStateRetry && done() == 3*customers && len(failed()) == customers
	}, state)
	got := runToEnd(t, "throttle", "--redis", addr, "explain", "--task", "c7-4")
	if want := `"c7-3" came earlier and has not ended (retry)`; got.status != 0 || !strings.Contains(got.stdout, want) {
		t.Errorf("throttle explain: status %d, want %q\n%s%s", got.status, want, got.stdout, got.stderr)
	}
	within := time.Minute
	if nightly() {
		within = 5 * time.Minute
	}
	testkit.Eventually(t, within, "all orders", func() bool {
		for _, id := range failed() {
			_ = inspector.RunTask("default", id) // it may be on its way
		}
		if nightly() && !api.killed && done() > customers*each/4 {
			api.mu.Lock()
			api.killed = true
			api.mu.Unlock()
			workers[0].kill()
		}
		return done() == customers*each
	}, state)
	api.mu.Lock()
	defer api.mu.Unlock()
	if api.again > 20 {
		t.Errorf("%d orders came again, a worker with 20 slots was killed", api.again)
	}
	t.Logf("%d orders came again", api.again)
	for i, wrong := range api.wrong {
		if i < 10 {
			t.Error(wrong)
		}
	}
}
