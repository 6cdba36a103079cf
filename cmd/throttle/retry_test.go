package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/jobview"
)

// nightly says that tests run at full size.
func nightly() bool { return os.Getenv("JOBTHROTTLE_NIGHTLY") != "" }

// TestArchivedComeBack: an API that answers 404 archives all jobs. Once it is mended,
// retry --archived brings them back: each runs once more, and none is lost.
func TestArchivedComeBack(t *testing.T) {
	jobs := 300
	if nightly() {
		jobs = 9000
	}
	var broken atomic.Bool
	broken.Store(true)
	var mu sync.Mutex
	served := map[string]int{}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		served[r.URL.Path]++
	}))
	t.Cleanup(api.Close)
	s := newSite(t)
	w := s.workers(fmt.Sprintf(`
limits: { api: { rate: 1000/1s } }
pools: [ { name: default, concurrency: 40, queues: { default: 1, other: 1 } } ]
jobs: { "http:request": { limits: [api] } }
http: { allow_hosts: [%q] }
`, api.Listener.Addr().String()))
	stop := w.start(nil)
	for i := range jobs {
		task := asynq.NewTask("http:request", fmt.Appendf(nil, `{"url":"%s/%d"}`, api.URL, i))
		_, err := w.queue.Enqueue(task, asynq.TaskID(fmt.Sprint("job", i)), asynq.Queue([]string{"default", "other"}[i%2]))
		s.check(err)
	}
	archived := func() (n int) {
		for _, queue := range []string{"default", "other"} {
			info, err := w.inspector.GetQueueInfo(queue)
			s.check(err)
			n += info.Archived
		}
		return n
	}
	timeout := time.Now().Add(2 * time.Minute)
	for archived() < jobs {
		if time.Now().After(timeout) {
			t.Fatalf("%d archived", archived())
		}
		<-time.After(20 * time.Millisecond)
	}
	// One by its id, and one of a type that nothing has.
	broken.Store(false)
	if got := s.done("retry", "job0"); got != "1 job is back in the queue\n" {
		t.Errorf("printed %q", got)
	}
	if got := s.done("retry", "--archived", "--type", "x:"); !strings.HasPrefix(got, "no such jobs") {
		t.Errorf("printed %q", got)
	}
	began := time.Now()
	result := decode[jobview.Retried](t, s.done("retry", "--archived", "--type", "http:*", "--json"))
	if result.Found != jobs-1 || result.Back != jobs-1 || result.Missed != nil {
		t.Errorf("%+v, want %d", result, jobs-1)
	}
	for {
		mu.Lock()
		n := len(served)
		mu.Unlock()
		if n == jobs {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%d of %d served after a minute", n, jobs)
		}
		<-time.After(20 * time.Millisecond)
	}
	t.Logf("%d jobs done %v after retry --archived began", jobs, time.Since(began))
	stop()
	for path, n := range served {
		if n != 1 {
			t.Errorf("%s: served %d times", path, n)
		}
	}
	if n := archived(); n != 0 {
		t.Errorf("%d are archived still", n)
	}
}

// TestRetryInterrupted: after Ctrl-C, the command has brought back what it says. The next run
// does the rest.
func TestRetryInterrupted(t *testing.T) {
	const jobs = 1000
	s := newSite(t)
	w := s.workers("")
	for i := range jobs {
		w.enqueue("x", fmt.Sprint("job", i))
	}
	if n, err := w.inspector.ArchiveAllPendingTasks("default"); err != nil || n != jobs {
		t.Fatal(n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	inspector := jobview.NewInspector(s.rdb)
	result, err := inspector.Retry(ctx, jobview.RetryQuery{Archived: true}, func(r jobview.Retried) {
		if r.Back >= 400 {
			cancel()
		}
	})
	if err == nil || result.Back != 400 {
		t.Errorf("%+v, %v: want 400 back, and an error", result, err)
	}
	if got := s.done("retry", "--archived"); got != "600 jobs are back in the queues\n" {
		t.Errorf("printed %q", got)
	}
	info, err := w.inspector.GetQueueInfo("default")
	if err != nil || info.Pending != jobs || info.Archived != 0 {
		t.Errorf("%+v, %v: want %d pending", info, err, jobs)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	expectFailure(t, runCommand(ended, "retry", "--archived", "--redis", s.addr), cli.Failed, []string{"interrupted"})
}

// TestRetryLeavesOthersAlone: jobs that wait did not fail; those that failed come back
// with --failed, by id too, in their order, with what is not meant left where it is.
func TestRetryLeavesOthersAlone(t *testing.T) {
	s := newSite(t)
	w := s.workers(`
limits: { api: { rate: 1/1h } }
jobs: { "x:api": { limits: [api], hold: 0 } }
`)
	stop := w.start(func(_ context.Context, task *asynq.Task) error {
		if task.Type() == "x:fails" {
			return fmt.Errorf("no luck")
		}
		return nil
	})
	w.enqueue("x:api", "first")
	w.awaitStarts(1)
	for _, id := range []string{"parked1", "parked2"} {
		w.enqueue("x:api", id)
		w.awaitExplained(id, "parked")
	}
	for _, id := range []string{"failed1", "failed2", "failed3"} {
		w.enqueue("x:fails", id)
		w.awaitExplained(id, "retry")
	}
	w.enqueue("x:fails", "gone", asynq.MaxRetry(0))
	w.awaitExplained("gone", "archived")
	stop()
	got := s.run("retry", "--failed", "parked1", "failed2", "gone", "failed2")
	if got.status != cli.Failed || got.stdout != "1 job is back in the queue\n" || !strings.Contains(got.stderr, `not failed: "parked1", "gone"`) {
		t.Errorf("%+v", got)
	}
	if got := s.done("retry", "--failed"); got != "2 jobs are back in the queues\n" {
		t.Errorf("printed %q", got)
	}
	if got := s.done("retry", "gone"); got != "1 job is back in the queue\n" {
		t.Errorf("printed %q", got)
	}
	ids := s.rdb.LRange(t.Context(), "asynq:{default}:pending", 0, -1).Val()
	if len(ids) != 4 || ids[0] != "gone" || ids[3] != "failed2" { // the last is taken first; the others had tries at random times before them
		t.Errorf("pending are %s", ids)
	}
	for _, id := range []string{"parked1", "parked2"} {
		w.awaitExplained(id, "parked")
	}
}
