package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/worker"
)

// workers are workers on a site, and what their handlers saw.
type workers struct {
	*site
	yaml      string
	queue     *asynq.Client
	inspector *asynq.Inspector

	mu     sync.Mutex
	starts []time.Time
	more   chan struct{} // has a token after a start
}

func (s *site) workers(yaml string) *workers {
	return &workers{
		site: s, yaml: fmt.Sprintf("redis: { addrs: [%q] }\nlog: { level: error }\n%s", s.addr, yaml),
		queue: asynq.NewClientFromRedisClient(s.rdb), inspector: asynq.NewInspectorFromRedisClient(s.rdb),
		more: make(chan struct{}, 1),
	}
}

// start starts a worker, which stops with the returned function or at the end of the test. Jobs
// of the types x:... record their start and then call handle.
func (w *workers) start(handle func(ctx context.Context, task *asynq.Task) error) (stop func()) {
	w.Helper()
	cfg, err := config.Parse("config.yaml", []byte(w.yaml))
	w.check(err)
	started, err := worker.New(cfg, zap.NewNop())
	w.check(err)
	started.HandleFunc("x", func(ctx context.Context, task *asynq.Task) error {
		w.mu.Lock()
		w.starts = append(w.starts, time.Now())
		w.mu.Unlock()
		select {
		case w.more <- struct{}{}:
		default:
		}
		if handle == nil {
			return nil
		}
		return handle(ctx, task)
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- started.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Errorf("Run: %v", err)
		}
	})
	w.Cleanup(stop)
	return stop
}

func (w *workers) enqueue(typ, id string, opts ...asynq.Option) {
	w.Helper()
	_, err := w.queue.Enqueue(asynq.NewTask(typ, nil), append(opts, asynq.TaskID(id))...)
	w.check(err)
}

func (w *workers) seen() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.starts)
}

// await waits until the condition holds. It checks it after each start, and regularly.
func (w *workers) await(what string, holds func() bool) {
	w.Helper()
	timeout := time.After(30 * time.Second)
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !holds() {
		select {
		case <-w.more:
		case <-poll.C:
		case <-timeout:
			w.Fatalf("not within 30s: %s", what)
		}
	}
}

func (w *workers) awaitStarts(n int) {
	w.Helper()
	w.await(fmt.Sprint(n, " starts"), func() bool { return len(w.seen()) >= n })
}

// awaitExplained waits until explain says that the job is in this state.
func (w *workers) awaitExplained(id, state string) worker.Explanation {
	w.Helper()
	var e worker.Explanation
	w.await(id+" is "+state, func() bool {
		got := w.run("explain", "--task", id, "--json")
		if got.status == cli.Done {
			e = decode[worker.Explanation](w, got.stdout)
		}
		return e.State == state
	})
	return e
}

// TestExplain asks for a job in each state, of real workers.
func TestExplain(t *testing.T) {
	s := newSite(t)
	w := s.workers(`
limits: { api: { rate: 1/1h } }
pools: [ { name: default, concurrency: 4 } ]
jobs: { "x:limited": { limits: [api], hold: 0 } }
`)
	w.enqueue("x:limited", "first")
	w.enqueue("x:free", "second")
	text := s.done("explain", "--task", "second")
	for _, want := range []string{`Job "second" (x:free, queue default) is pending`, "1 job is before it", "No running worker serves queue default"} {
		if !strings.Contains(text, want) {
			t.Errorf("pending: %q is missing in\n%s", want, text)
		}
	}
	release := make(chan struct{})
	w.start(func(ctx context.Context, _ *asynq.Task) error {
		switch id, _ := asynq.GetTaskID(ctx); id {
		case "fails":
			return errors.New("no such account")
		case "hopeless":
			return asynq.SkipRetry
		case "runs":
			<-release
		}
		return nil
	})
	defer close(release)
	w.awaitStarts(2)
	w.enqueue("x:limited", "parked")
	e := w.awaitExplained("parked", worker.StateParked)
	if e.Limiter == nil || e.Limiter.Name != "api" || e.Since.IsZero() || e.Ahead == nil || *e.Ahead != 0 || !e.ComesBack.After(e.At) {
		t.Errorf("parked: %+v", e)
	}
	text = s.done("explain", "--task", "parked", "--queue", "default")
	for _, want := range []string{`is parked: limit "api" holds it since`, "no job is before it in line; its turn comes in about", "is full: 1 used"} {
		if !strings.Contains(text, want) {
			t.Errorf("parked: %q is missing in\n%s", want, text)
		}
	}
	if text := s.done("show", "api"); !strings.Contains(text, "parked      1 jobs in line; the first is due: ") {
		t.Errorf("show api:\n%s", text)
	}
	w.enqueue("x:free", "fails", asynq.MaxRetry(3))
	if e := w.awaitExplained("fails", "retry"); e.LastError != "no such account" || e.PutOff || e.Limiter != nil || e.Retried != 1 {
		t.Errorf("failed: %+v", e)
	}
	w.enqueue("x:free", "hopeless")
	w.awaitExplained("hopeless", "archived")
	w.enqueue("x:free", "done", asynq.Retention(time.Hour))
	w.awaitExplained("done", "completed")
	w.enqueue("x:free", "later", asynq.ProcessIn(time.Hour))
	w.awaitExplained("later", "scheduled")
	w.enqueue("x:free", "runs")
	w.awaitExplained("runs", "active")

	s.fails(cli.Failed, []string{"explain", "--task", "nobody"}, []string{`"nobody"`, "no such task in Redis at " + s.addr, "retention"})
	s.fails(cli.Failed, []string{"explain", "--task", "done", "--queue", "attic"}, []string{`"attic"`, "--queue"})
	w.enqueue("x:free", "done", asynq.Queue("other"))
	s.fails(cli.Failed, []string{"explain", "--task", "done"}, []string{`"done"`, "default, other", "--queue"})

	s.check(w.inspector.PauseQueue("default")) // the worker calls the jobs of a broken limit again and again
	for what, spoil := range map[string]func() error{
		"its guard":    func() error { return s.rdb.HSet(t.Context(), "api", "guard", "1e300").Err() },
		"another type": func() error { return s.rdb.Set(t.Context(), "{api}:permits", "x", 0).Err() },
	} {
		s.check(s.rdb.HDel(t.Context(), "api", "guard").Err())
		s.check(spoil())
		text := s.done("explain", "--task", "parked")
		for _, want := range []string{"The limit is broken", what, "throttle set api RATE fixes it"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is missing in\n%s", what, want, text)
			}
		}
		if strings.Contains(text, "its turn comes in") {
			t.Errorf("%s: nobody knows when its turn comes:\n%s", what, text)
		}
		if e := decode[worker.Explanation](t, s.done("explain", "--task", "parked", "--json")); e.Limiter == nil || !strings.Contains(e.Limiter.Broken, what) {
			t.Errorf("%s: %+v", what, e.Limiter)
		}
	}
}

// TestExplainBrokenInFlight: a job waits for a slot of a limit in flight whose keys hold something else. explain says what is wrong.
func TestExplainBrokenInFlight(t *testing.T) {
	s := newSite(t)
	w := s.workers(`
limits: { crm: { in_flight: 1 } }
jobs: { "x:": { limits: [crm], hold: 0 } }
`)
	held := make(chan struct{})
	w.start(func(context.Context, *asynq.Task) error { <-held; return nil })
	defer close(held)
	w.enqueue("x:job", "runs")
	w.awaitStarts(1)
	w.enqueue("x:job", "parked")
	w.awaitExplained("parked", "parked")
	s.check(w.inspector.PauseQueue("default"))
	for what, spoil := range map[string]func() error{
		"restart a worker": func() error { return s.rdb.HSet(t.Context(), "crm", "in_flight", "-1").Err() },
		"another type":     func() error { return s.rdb.Set(t.Context(), "{crm}:slots", "x", 0).Err() },
	} {
		s.check(s.rdb.HSet(t.Context(), "crm", "in_flight", "1").Err())
		s.check(spoil())
		text := s.done("explain", "--task", "parked")
		for _, want := range []string{`waits for a slot of limit "crm"`, "The limit is broken", what} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is missing in\n%s", want, text)
			}
		}
		if e := decode[worker.Explanation](t, s.done("explain", "--task", "parked", "--json")); e.Slots == nil || !strings.Contains(e.Slots.Broken, what) {
			t.Errorf("%s: %+v", what, e.Slots)
		}
	}
}
