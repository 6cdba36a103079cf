package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/hibiken/asynqmon"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
	"github.com/jobthrottle/jobthrottle/throttle"
)

const (
	monitoredJobs     = 60
	monitoredRate     = 10 // per interval: in a random order, jobs would start up to 3 s before earlier ones
	monitoredInterval = 500 * time.Millisecond
	monitoredSlots    = 3
)

// monitored is a server with limits that has a backlog, and asynqmon beside it.
type monitored struct {
	t       *testing.T
	monitor *asynqmon.HTTPHandler
	rdb     *redis.Client
	client  *asynq.Client
	limit   *throttle.Limiter
	atOnce  chan struct{} // takes a value from each job "together"

	mu     sync.Mutex
	starts []monitoredStart
}

type monitoredStart struct {
	id string
	at time.Time
}

// newMonitored returns when a backlog, whose jobs have these limits, waits for the limit api, which is paused.
func newMonitored(t *testing.T, of string) *monitored {
	t.Helper()
	addr := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 60})
	t.Cleanup(func() { rdb.Close() })
	m := &monitored{t: t, monitor: asynqmon.New(asynqmon.Options{RedisConnOpt: asynq.RedisClientOpt{Addr: addr}}),
		rdb: rdb, client: asynq.NewClientFromRedisClient(rdb), atOnce: make(chan struct{})}
	t.Cleanup(func() { m.monitor.Close() })
	limits, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { limits.Close() })
	if m.limit, err = limits.Limiter("api"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.limit.TrySetRate(t.Context(), throttle.Rate{Permits: monitoredRate, Interval: monitoredInterval}); err != nil {
		t.Fatal(err)
	}
	if err := m.limit.Pause(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	for i := range monitoredJobs {
		m.enqueue(fmt.Sprintf("job%02d", i))
	}
	m.serve(of)
	m.awaitWaiting(monitoredJobs)
	return m
}

// serve runs the server until the test ends.
func (m *monitored) serve(of string) {
	m.t.Helper()
	cfg, err := config.Parse("config.yaml", fmt.Appendf(nil, `
limits: { api: { rate: %d/%v, guard: 100ms }, seats: { in_flight: %d } }
jobs: { x: { limits: [%s], hold: 0 }, y: { limits: [seats] } }
`, monitoredRate, monitoredInterval, monitoredSlots, of))
	if err != nil {
		m.t.Fatal(err)
	}
	limits, err := asynqlimit.New(m.rdb, cfg, asynqlimit.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		m.t.Fatal(err)
	}
	mux := asynq.NewServeMux()
	mux.HandleFunc("x", func(ctx context.Context, _ *asynq.Task) error {
		at := time.Now()
		id, _ := asynq.GetTaskID(ctx)
		m.mu.Lock()
		m.starts = append(m.starts, monitoredStart{id, at})
		m.mu.Unlock()
		if strings.HasPrefix(id, "together") {
			select {
			case m.atOnce <- struct{}{}:
			case <-ctx.Done():
			}
		}
		return nil
	})
	srv := asynq.NewServerFromRedisClient(limits.Redis(), limits.Configure(asynq.Config{Concurrency: monitoredSlots, LogLevel: asynq.ErrorLevel}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- limits.Serve(ctx, srv, mux) }()
	m.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			m.t.Errorf("Serve: %v", err)
		}
	})
}

func (m *monitored) enqueue(id string) {
	m.t.Helper()
	if _, err := m.client.Enqueue(asynq.NewTask("x", nil), asynq.TaskID(id), asynq.MaxRetry(0)); err != nil {
		m.t.Fatal(err)
	}
}

// ask sends asynqmon the request that its page sends, and decodes what it answers into answer, if that is not nil.
func (m *monitored) ask(method, path string, answer any) {
	m.t.Helper()
	response := httptest.NewRecorder()
	m.monitor.ServeHTTP(response, httptest.NewRequest(method, "/api/queues/default"+path, nil))
	switch response.Code {
	case http.StatusNoContent:
	case http.StatusOK:
		if answer == nil {
			return
		}
		if err := json.Unmarshal(response.Body.Bytes(), answer); err != nil {
			m.t.Fatalf("%s %s: %v", method, path, err)
		}
	default:
		m.t.Fatalf("%s %s: %d %s", method, path, response.Code, response.Body)
	}
}

// monitoredQueue is what asynqmon says about a queue.
type monitoredQueue struct{ Size, Active, Pending, Retry, Archived, Failed int }

func (m *monitored) queue() monitoredQueue {
	m.t.Helper()
	var answer struct{ Current monitoredQueue }
	m.ask(http.MethodGet, "", &answer)
	return answer.Current
}

func (m *monitored) awaitQueue(what string, holds func(monitoredQueue) bool) {
	m.t.Helper()
	testkit.Eventually(m.t, patience, what, func() bool { return holds(m.queue()) }, func() string { return fmt.Sprintf("%+v", m.queue()) })
}

func (m *monitored) awaitWaiting(n int) {
	m.t.Helper()
	m.awaitQueue(fmt.Sprint(n, " jobs wait"), func(q monitoredQueue) bool { return q == monitoredQueue{Size: n, Retry: n} })
}

// resume lets the limit go on.
func (m *monitored) resume() {
	m.t.Helper()
	if err := m.limit.Resume(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
}

func (m *monitored) seen() []monitoredStart {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.starts)
}

// awaitEnd waits until nothing is left, and checks that no job failed, that so many ran, each once, and never more at a time
// than the limit allows.
func (m *monitored) awaitEnd(jobs int) []monitoredStart {
	m.t.Helper()
	m.awaitQueue("an empty queue", func(q monitoredQueue) bool { return q.Size == 0 })
	if q := m.queue(); q.Failed != 0 {
		m.t.Errorf("%d jobs failed", q.Failed)
	}
	starts, ran := m.seen(), map[string]int{}
	for i, st := range starts {
		ran[st.id]++
		if i < monitoredRate {
			continue
		}
		if within := st.at.Sub(starts[i-monitoredRate].at); within < monitoredInterval {
			m.t.Errorf("%d starts within %v, want at most %d in %v", monitoredRate+1, within, monitoredRate, monitoredInterval)
		}
	}
	if len(ran) != jobs || len(starts) != jobs {
		m.t.Errorf("%d starts of %d jobs, want each of %d once", len(starts), len(ran), jobs)
	}
	var keys []string
	testkit.Eventually(m.t, patience, "nothing of ours is left in the queue", func() bool {
		keys = m.rdb.Keys(m.t.Context(), "asynq:{default}:jt:*").Val()
		return len(keys) == 0
	}, func() string { return fmt.Sprintf("%q", keys) })
	return starts
}

// checkOrder checks that at most so many jobs started more than a second before one that was enqueued earlier.
func (m *monitored) checkOrder(starts []monitoredStart, most int) {
	m.t.Helper()
	early := map[string]time.Duration{}
	for i, st := range starts {
		for _, later := range starts[i+1:] {
			if before := later.at.Sub(st.at); later.id < st.id && before > time.Second {
				early[st.id] = max(early[st.id], before)
			}
		}
	}
	if len(early) > most {
		m.t.Errorf("these started before earlier jobs: %v; want at most %d", early, most)
	}
}

// checkSlots checks that all slots of the server and of the limit in flight are free: so many jobs can run at the same time.
func (m *monitored) checkSlots() {
	m.t.Helper()
	for i := range monitoredSlots {
		m.enqueue(fmt.Sprint("together", i))
	}
	m.awaitQueue("jobs in all slots", func(q monitoredQueue) bool { return q.Active == monitoredSlots })
	testkit.Eventually(m.t, patience, "jobs that run in all slots", func() bool {
		together := 0
		for _, st := range m.seen() {
			if strings.HasPrefix(st.id, "together") {
				together++
			}
		}
		return together == monitoredSlots
	})
	for range monitoredSlots {
		<-m.atOnce
	}
}

// TestAsynqmon: whoever watches a queue with asynqmon sees what its jobs wait for, and can do with them what its buttons say.
func TestAsynqmon(t *testing.T) {
	t.Run("list", func(t *testing.T) {
		t.Parallel()
		m := newMonitored(t, "api, seats")
		var page struct {
			Tasks []struct {
				ID, Type string
				Error    string `json:"error_message"`
				Retried  int
			}
		}
		m.ask(http.MethodGet, "/retry_tasks?size=100", &page)
		if len(page.Tasks) != monitoredJobs {
			t.Errorf("%d tasks, want %d", len(page.Tasks), monitoredJobs)
		}
		for _, task := range page.Tasks {
			if task.Type != "x" || task.Retried != 0 || !strings.HasPrefix(task.Error, `throttled by limiter "api"`) {
				t.Errorf("%+v", task)
			}
		}
	})
	t.Run("run all", func(t *testing.T) {
		t.Parallel()
		m := newMonitored(t, "api")
		m.ask(http.MethodPost, "/retry_tasks:run_all", nil)
		m.awaitWaiting(monitoredJobs) // the limit is paused: they come back
		m.resume()
		m.checkOrder(m.awaitEnd(monitoredJobs), 0)
		m.checkSlots()
	})
	t.Run("run all while others run", func(t *testing.T) {
		t.Parallel()
		m := newMonitored(t, "api")
		m.resume()
		testkit.Eventually(t, patience, "the first jobs", func() bool { return len(m.seen()) >= monitoredRate/2 })
		m.ask(http.MethodPost, "/retry_tasks:run_all", nil)
		m.checkOrder(m.awaitEnd(monitoredJobs), monitoredSlots) // some get permits before the others are back in line
		m.checkSlots()
	})
	t.Run("delete all", func(t *testing.T) {
		t.Parallel()
		m := newMonitored(t, "api, seats")
		m.resume()
		testkit.Eventually(t, patience, "the first jobs", func() bool { return len(m.seen()) >= monitoredRate/2 })
		var answer struct{ Deleted int }
		m.ask(http.MethodDelete, "/retry_tasks:delete_all", &answer)
		if answer.Deleted == 0 {
			t.Error("no job was deleted")
		}
		m.awaitEnd(monitoredJobs - answer.Deleted)
		m.checkSlots()
	})
	t.Run("archive all", func(t *testing.T) {
		t.Parallel()
		m := newMonitored(t, "api, seats")
		m.ask(http.MethodPost, "/retry_tasks:archive_all", nil)
		m.awaitQueue("all jobs in the archive", func(q monitoredQueue) bool {
			return q == monitoredQueue{Size: monitoredJobs, Archived: monitoredJobs}
		})
		m.resume()
		m.checkSlots() // although the limit goes on, no archived job runs
		m.awaitQueue("only the archive", func(q monitoredQueue) bool { return q.Size == q.Archived })
		if n := len(m.seen()); n != monitoredSlots {
			t.Errorf("%d jobs ran, want %d", n, monitoredSlots)
		}
		m.ask(http.MethodPost, "/archived_tasks:run_all", nil)
		m.awaitEnd(monitoredJobs + monitoredSlots)
	})
}
