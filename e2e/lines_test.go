package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/strictapi"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// TestStuckQueueHoldsUpNoOther: a queue has 400 jobs parked, and its only worker is killed, hangs, or waits for an API that
// never answers. The jobs of another queue have the limit for themselves, and those of the first go on when the cause is gone.
func TestStuckQueueHoldsUpNoOther(t *testing.T) {
	for name, test := range map[string]func(*twoQueues){
		"killed": func(s *twoQueues) {
			first := s.start("first")
			s.start("other")
			s.goOn()
			first.kill()
			s.otherIsDone()
			s.start("first")
			// Those that were in the 10 slots and the room for 5 of the killed one come back later, by asynq's recoverer.
			s.awaitDone("first", firstJobs-15)
			s.checkLimit()
		},
		"hangs": func(s *twoQueues) {
			first := s.start("first")
			s.start("other")
			s.goOn()
			s.signal(first, syscall.SIGSTOP)
			s.t.Cleanup(func() { _ = first.cmd.Process.Signal(syscall.SIGCONT) }) // before a failed test asks it where it is
			s.otherIsDone()
			s.checkLimit()
			s.signal(first, syscall.SIGCONT)
			s.awaitDone("first", firstJobs)
		},
		"never answered": func(s *twoQueues) {
			s.stuck.Store(true)
			s.start("first", "other") // a pool for each
			s.goOn()
			s.otherIsDone()
			s.checkLimit()
			s.answer()
			s.awaitDone("first", firstJobs)
			s.checkLimit()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newTwoQueues(t))
		})
	}
}

// twoQueues are queues whose jobs share a limit. The jobs of the first are parked.
type twoQueues struct {
	t         *testing.T
	api       *strictapi.API
	server    *httptest.Server
	stuck     atomic.Bool   // the API does not answer the jobs of the first queue
	answers   chan struct{} // closed when it answers all
	redis     string
	inspector *asynq.Inspector
	limiter   *throttle.Limiter
	dir       string
}

// How many jobs the two queues have, and how many start in a second.
const firstJobs, otherJobs, perSecond = 400, 200, 50

func newTwoQueues(t *testing.T) *twoQueues {
	t.Helper()
	s := &twoQueues{t: t, answers: make(chan struct{}), redis: redistest.Start(t), dir: t.TempDir()}
	s.api = strictapi.New(perSecond, time.Second)
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.api.ServeHTTP(w, r)
		if s.stuck.Load() && strings.HasPrefix(r.URL.Query().Get("job"), "first") {
			<-s.answers // what it has written is sent after this
		}
	}))
	t.Cleanup(s.server.Close)
	t.Cleanup(s.answer)
	rdb := redis.NewClient(&redis.Options{Addr: s.redis})
	t.Cleanup(func() { rdb.Close() })
	s.inspector = asynq.NewInspectorFromRedisClient(rdb)
	client, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if s.limiter, err = client.Limiter("api"); err != nil {
		t.Fatal(err)
	}
	return s
}

// config writes the configuration of a worker with a pool for each queue.
func (s *twoQueues) config(queues ...string) string {
	s.t.Helper()
	var pools []string
	for _, queue := range queues {
		pools = append(pools, fmt.Sprintf("{ name: %s, concurrency: 10, max_waiting: 5, queues: { %s: 1 } }", queue, queue))
	}
	path := filepath.Join(s.dir, strings.Join(queues, "-")+".yaml")
	text := fmt.Sprintf(`
redis: { addrs: [%q] }
limits: { api: { rate: %d/1s, guard: 100ms } }
pools: [ %s ]
jobs: { "http:request": { limits: [api] } }
http: { allow_hosts: [%q] }
`, s.redis, perSecond, strings.Join(pools, ", "), s.server.Listener.Addr())
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *twoQueues) start(queues ...string) *worker {
	s.t.Helper()
	return startWorker(s.t, s.config(queues...))
}

func (s *twoQueues) signal(w *worker, sig syscall.Signal) {
	s.t.Helper()
	if err := w.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// answer makes the API answer all jobs, from now on.
func (s *twoQueues) answer() {
	if s.stuck.Swap(false) {
		close(s.answers)
	}
}

func (s *twoQueues) enqueue(queue string, n int) {
	s.t.Helper()
	var lines strings.Builder
	for i := range n {
		id := fmt.Sprint(queue, i)
		fmt.Fprintf(&lines, `{"type":"http:request","id":%q,"queue":%q,"payload":{"url":"%s/?job=%s"}}`+"\n", id, queue, s.server.URL, id)
	}
	file := filepath.Join(s.dir, queue+".ndjson")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if got := runToEnd(s.t, "enqueue", "--config", s.config(queue), "--file", file); got.status != 0 {
		s.t.Fatalf("enqueue: status %d\n%s%s", got.status, got.stdout, got.stderr)
	}
}

func (s *twoQueues) queue(name string) *asynq.QueueInfo {
	s.t.Helper()
	info, err := s.inspector.GetQueueInfo(name)
	if err != nil {
		s.t.Fatal(err)
	}
	return info
}

// goOn parks the jobs of the first queue, and returns when the first of them have reached the API.
func (s *twoQueues) goOn() {
	s.t.Helper()
	if err := s.limiter.Pause(context.Background(), time.Hour); err != nil {
		s.t.Fatal(err)
	}
	s.enqueue("first", firstJobs)
	testkit.Eventually(s.t, 20*time.Second, "all parked", func() bool { return s.queue("first").Retry == firstJobs })
	if err := s.limiter.Resume(context.Background()); err != nil {
		s.t.Fatal(err)
	}
	started := perSecond
	if s.stuck.Load() {
		started = 9 // and then all slots are in use
	}
	testkit.Eventually(s.t, 5*time.Second, "the first go on", func() bool { return s.api.Report().Requests > started })
}

// otherIsDone fails the test if the jobs of the other queue do not get the whole limit.
func (s *twoQueues) otherIsDone() {
	s.t.Helper()
	s.enqueue("other", otherJobs)
	began := time.Now()
	s.awaitDone("other", otherJobs)
	took := time.Since(began)
	s.t.Logf("%d jobs beside %d of a queue that is stuck took %v", otherJobs, firstJobs-s.queue("first").Completed, took)
	if took > 6*time.Second { // 4.4 s; 8.8 s if they got half
		s.t.Errorf("%d jobs beside those of a queue that is stuck took %v, want at most 6s", otherJobs, took)
	}
}

func (s *twoQueues) awaitDone(queue string, n int) {
	s.t.Helper()
	testkit.Eventually(s.t, 20*time.Second, queue+" done", func() bool { return s.queue(queue).Completed >= n },
		func() string { return fmt.Sprintf("%+v", *s.queue(queue)) })
}

func (s *twoQueues) checkLimit() {
	s.t.Helper()
	if r := s.api.Report(); r.Peak > perSecond || r.Refused > 0 {
		s.t.Errorf("%d requests within a second, %d refused; the limit is %d", r.Peak, r.Refused, perSecond)
	}
}
