package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

const fiftyPerSecond = `
limits: { api: { rate: 50/1s, guard: 100ms } } # the tests take the time when handlers begin
jobs: { "x:limited": { limits: [api] } }
`

// TestQueueThatNobodyRuns: queues idle and other share a limit. The first is paused in asynq, or
// has no server, with 400 jobs in line. The 100 jobs of the other get the whole limit.
func TestQueueThatNobodyRuns(t *testing.T) {
	tests := []struct {
		name        string
		stop, again func(s *site, idle func())
	}{
		{"paused", func(s *site, _ func()) {
			if err := s.inspector.PauseQueue("idle"); err != nil {
				s.t.Fatal(err)
			}
		}, func(s *site, _ func()) {
			if err := s.inspector.UnpauseQueue("idle"); err != nil {
				s.t.Fatal(err)
			}
		}},
		{"no server", func(_ *site, idle func()) { idle() }, func(s *site, _ func()) {
			s.serve(member{name: "idle", yaml: fiftyPerSecond, asynq: asynq.Config{Queues: map[string]int{"idle": 1}}})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			onBoth(t, func(s *site) {
				goOn := s.stopLimit("api", "50/1s")
				idle := s.serve(member{name: "idle", yaml: fiftyPerSecond, asynq: asynq.Config{Queues: map[string]int{"idle": 1}}})
				for i := range 400 {
					s.enqueue("x:limited", fmt.Sprint("idle", i), asynq.Queue("idle"))
				}
				s.awaitWaiting("idle", 400)
				s.serve(member{name: "other", yaml: fiftyPerSecond, asynq: asynq.Config{Queues: map[string]int{"other": 1}}})
				tt.stop(s, idle)
				goOn()
				began := time.Now()
				for i := range 100 {
					s.enqueue("x:limited", fmt.Sprint("other", i), asynq.Queue("other"))
				}
				s.awaitStarts("other", 100, 20*time.Second)
				took := time.Since(began)
				s.t.Logf("100 jobs beside 400 that nobody runs took %v", took)
				if took > 3*time.Second {
					s.t.Errorf("100 jobs beside 400 that nobody runs took %v, want at most 3s", took)
				}
				if n := len(s.seen("idle")); n > 50 { // jobs that were called when the pause ended
					s.t.Errorf("%d of the idle queue started", n)
				}
				tt.again(s, idle)
				s.awaitStarts("idle", 400, 20*time.Second)
				s.awaitDone("idle", 10*time.Second)
				s.awaitDone("other", 10*time.Second)
				if most := busiest(s.seen(""), 950*time.Millisecond); most > 50 {
					s.t.Errorf("%d starts within 950ms, want at most 50", most)
				}
			})
		})
	}
}

// TestNightlyJob: a job with a fixed id, without retries, is put off each night. It runs once
// each night, under its id.
func TestNightlyJob(t *testing.T) {
	onBoth(t, func(s *site) {
		s.serve(member{yaml: "limits: { api: { rate: 1/1s } }\njobs: { \"x:limited\": { limits: [api], hold: 0 } }\n"})
		for night := range 3 {
			s.enqueue("x:limited", fmt.Sprint("first", night))
			s.awaitStarts(fmt.Sprint("first", night), 1, 10*time.Second)
			s.enqueue("x:limited", "nightly", asynq.MaxRetry(0), asynq.Retention(time.Hour), asynq.Unique(time.Hour))
			s.awaitStarts("nightly", night+1, 10*time.Second)
			s.await(10*time.Second, func() (bool, string) {
				info, err := s.inspector.GetTaskInfo("default", "nightly")
				return err == nil && info.State == asynq.TaskStateCompleted, fmt.Sprint(info, err)
			})
			if err := s.inspector.DeleteTask("default", "nightly"); err != nil { // as asynq's janitor does after its retention
				s.t.Fatal(err)
			}
		}
		if n := len(s.seen("nightly")); n != 3 {
			s.t.Errorf("it ran %d times in 3 nights", n)
		}
		s.awaitDone("default", 10*time.Second)
	})
}

// TestPoisonousJob: the API always answers 429 to one job. The 200 others get the limit, except
// during that job's first pause.
func TestPoisonousJob(t *testing.T) {
	onBoth(t, func(s *site) {
		s.serve(member{yaml: "limits: { api: { rate: 20/1s, guard: 50ms } }\njobs: { \"x:limited\": { limits: [api] } }\n",
			handle: func(ctx context.Context, _ *asynq.Task) error {
				if id, _ := asynq.GetTaskID(ctx); id == "poison" {
					return fmt.Errorf("429: %w", asynqlimit.RetryAfter(time.Second))
				}
				return nil
			}})
		s.enqueue("x:limited", "poison", asynq.MaxRetry(0))
		s.awaitStarts("poison", 1, 10*time.Second)
		began := time.Now()
		for i := range 200 {
			s.enqueue("x:limited", fmt.Sprint("job", i))
		}
		s.awaitStarts("job", 200, 30*time.Second)
		took := time.Since(began)
		s.t.Logf("200 jobs at 20/s beside it took %v", took)
		if took > 13*time.Second {
			s.t.Errorf("200 jobs at 20/s beside one that is always refused took %v, want at most 13s", took)
		}
		if q := s.queue("default"); q.Archived+q.Failed != 0 {
			s.t.Errorf("%d archived, %d failed", q.Archived, q.Failed)
		}
		if n := len(s.seen("poison")); n > 6 {
			s.t.Errorf("the refused job ran %d times", n)
		}
	})
}

// TestDeletedAndEnqueuedAgain: a job in line is deleted, and its id enqueued again for tomorrow.
// It does not run today.
func TestDeletedAndEnqueuedAgain(t *testing.T) {
	onBoth(t, func(s *site) {
		goOn := s.stopLimit("api", "50/1s")
		s.serve(member{yaml: fiftyPerSecond, handle: func(_ context.Context, task *asynq.Task) error {
			if task.Type() == "y:fails" {
				return errors.New("fails")
			}
			return nil
		}})
		for _, id := range []string{"tomorrow", "failed", "archived", "last"} {
			s.enqueue("x:limited", id)
		}
		s.awaitWaiting("default", 4)
		for _, id := range []string{"tomorrow", "failed"} {
			if err := s.inspector.DeleteTask("default", id); err != nil {
				s.t.Fatal(err)
			}
		}
		if err := s.inspector.ArchiveTask("default", "archived"); err != nil {
			s.t.Fatal(err)
		}
		s.enqueue("x:limited", "tomorrow", asynq.ProcessIn(24*time.Hour))
		s.enqueue("y:fails", "failed", asynq.MaxRetry(3))
		s.awaitStarts("failed", 1, 10*time.Second)
		goOn()
		s.awaitStarts("last", 1, 10*time.Second)
		s.await(10*time.Second, func() (bool, string) {
			n := s.rdb.Exists(s.t.Context(), "asynq:{default}:jt:line:api").Val()
			return n == 0, "the line is not empty"
		})
		if n := len(s.seen("tomorrow")) + len(s.seen("archived")); n != 0 {
			s.t.Errorf("what was enqueued for tomorrow, or archived, ran %d times", n)
		}
		if n := len(s.seen("failed")); n != 1 {
			s.t.Errorf("what failed ran %d times before it was due again", n)
		}
		info, err := s.inspector.GetTaskInfo("default", "tomorrow")
		if err != nil || info.State != asynq.TaskStateScheduled || time.Until(info.NextProcessAt) < 23*time.Hour {
			s.t.Errorf("%+v, %v", info, err)
		}
		if err := s.inspector.RunTask("default", "archived"); err != nil {
			s.t.Fatal(err)
		}
		s.awaitStarts("archived", 1, 10*time.Second)
	})
}

// TestMistakesMakeJobsWait: there is a backlog and a mistake in the configuration, in a
// deployment, or by an operator. All jobs wait, none is archived, no retry is used up, and all
// run once the mistake is mended. The guard is long, so that permits are not too old where the tests of many packages
// share few processors: else almost no job would run.
func TestMistakesMakeJobsWait(t *testing.T) {
	n, run := 300, func(t *testing.T, test func(*site)) { t.Parallel(); onBoth(t, test) }
	if nightly() { // one backlog after the other: two keep each other from the processors; miniredis takes too long for so many
		n, run = 12_000, func(t *testing.T, test func(*site)) { test(newSite(t, redistest.Start(t))) }
	}
	keyed := func(key string) string {
		return "limits: { api: { rate: 100000/1s, guard: 500ms, key: " + key + " } }\njobs: { \"x:\": { limits: [api] } }\n"
	}
	costly := func(permits, rate string) string {
		return "limits: { api: { rate: " + rate + ", guard: 500ms } }\njobs: { \"x:\": { limits: [api], permits: " + permits + " } }\n"
	}
	noCredential := func(context.Context, *asynq.Task) error {
		return asynqlimit.Blocked("no_credential", errors.New("none for acme"))
	}
	tests := []struct {
		name          string
		before, after member
		reason        string
	}{
		{"misspelt key", member{yaml: keyed("payload.acount")}, member{yaml: keyed("payload.account")}, "bad_key"},
		{"misspelt permits", member{yaml: costly("payload.token", "100000/1s")}, member{yaml: costly("payload.tokens", "100000/1s")}, "bad_cost"},
		{"lowered limit", member{yaml: costly("payload.tokens", "4/1s")}, member{yaml: costly("payload.tokens", "100000/1s")}, "cost_above_limit"},
		{"no handler", member{yaml: keyed("payload.account"), mux: asynq.NewServeMux()}, member{yaml: keyed("payload.account")}, "no_handler"},
		{"blocked by the handler", member{yaml: keyed("payload.account"), handle: noCredential}, member{yaml: keyed("payload.account")}, "no_credential"},
	}
	for _, tt := range tests {
		tt.before.name, tt.after.name = "with the mistake", "mended"
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(s *site) {
				for i := range n {
					s.enqueuePayload("x:job", fmt.Sprint("job", i), []byte(`{"account": "acme", "tokens": 5}`), asynq.MaxRetry(i%2), asynq.Retention(time.Hour))
				}
				stop := s.serve(tt.before)
				s.awaitBlocked("default", n, tt.reason)
				began := time.Now()
				stop()
				s.serve(tt.after)
				mended := func() []start {
					return slices.DeleteFunc(s.seen("job"), func(st start) bool { return st.server != tt.after.name })
				}
				s.await(30*time.Second, func() (bool, string) {
					got := len(mended())
					return got >= n, fmt.Sprintf("%d of %d starts; %+v", got, n, s.queue("default"))
				})
				s.t.Logf("%d jobs done %v after it was mended", n, time.Since(began))
				s.awaitDone("default", 10*time.Second)
				if got := len(mended()); got != n {
					s.t.Errorf("%d starts of %d jobs", got, n)
				}
				s.checkRetries(n)
			})
		})
	}
}

// awaitBlocked waits until n tasks of a queue are blocked for this reason, and checks that none has used up a retry.
// Until then some may wait for permits, because they came too late for theirs.
func (s *site) awaitBlocked(queue string, n int, reason string) {
	s.t.Helper()
	s.await(30*time.Second, func() (bool, string) {
		s.awaitWaiting(queue, n)
		tasks, err := s.inspector.ListRetryTasks(queue, asynq.PageSize(n))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, task := range tasks {
			if task.Retried != 0 || !strings.HasPrefix(task.LastErr, "blocked ("+reason+")") {
				return false, fmt.Sprintf("%+v: want it blocked for %s", task, reason)
			}
		}
		return len(tasks) == n, fmt.Sprintf("%d tasks wait, want %d", len(tasks), n)
	})
}

// checkRetries checks that no task has used up a retry.
func (s *site) checkRetries(n int) {
	s.t.Helper()
	tasks, err := s.inspector.ListCompletedTasks("default", asynq.PageSize(n))
	if err != nil || len(tasks) != n {
		s.t.Errorf("%d completed of %d, %v", len(tasks), n, err)
	}
	for _, task := range tasks {
		if task.Retried != 0 {
			s.t.Fatalf("%s has used up %d retries: %s", task.ID, task.Retried, task.LastErr)
		}
	}
}

// TestOneBadJobOfAType: some jobs of a type will never have an account. They wait, and the others
// of the type run.
func TestOneBadJobOfAType(t *testing.T) {
	onBoth(t, func(s *site) {
		const yaml = "limits: { api: { rate: 100000/1s, guard: 500ms, key: payload.%s } }\njobs: { \"x:\": { limits: [api] } }\n"
		for i := range 200 {
			payload := `{"account": "acme"}`
			if i < 20 {
				payload = `{}`
			}
			s.enqueuePayload("x:job", fmt.Sprint("job", i), []byte(payload))
		}
		stop := s.serve(member{yaml: fmt.Sprintf(yaml, "acount")})
		s.awaitWaiting("default", 200)
		stop()
		s.serve(member{yaml: fmt.Sprintf(yaml, "account")})
		s.awaitStarts("job", 180, 60*time.Second)
		s.awaitWaiting("default", 20)
		if q := s.queue("default"); q.Archived+q.Failed != 0 {
			s.t.Errorf("%d archived, %d failed", q.Archived, q.Failed)
		}
	})
}

// TestOrder: jobs start in the order in which they came, across a pause and a restart of the
// servers, within a second.
func TestOrder(t *testing.T) {
	onEach(t, func(s *site) {
		goOn := s.stopLimit("api", "50/1s")
		// On a busy machine, a stale permit is exchanged for one of the next second, so the guard
		// is wide.
		const yaml = "limits: { api: { rate: 50/1s, guard: 500ms } }\njobs: { \"x:limited\": { limits: [api] } }\n"
		m := member{yaml: yaml, asynq: asynq.Config{Concurrency: 5}}
		stop := s.serve(m)
		for i := range 300 {
			s.enqueue("x:limited", fmt.Sprintf("job%03d", i))
		}
		s.awaitWaiting("default", 300)
		goOn()
		s.awaitStarts("job", 50, 20*time.Second)
		stop()
		s.serve(m)
		s.serve(m)
		s.inOrder(300, 20*time.Second)
		s.awaitDone("default", 10*time.Second)
	})
}
