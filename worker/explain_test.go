package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/producer"
)

// explain explains a task that is there, and checks that its sentences have these words.
func (f *fleet) explain(id string, words ...string) *Explanation {
	f.t.Helper()
	e, err := NewInspector(f.rdb).Explain(f.t.Context(), id, "")
	if err != nil {
		f.t.Fatal(err)
	}
	text := strings.Join(e.Text(), "\n")
	for _, w := range append(words, id) {
		if !strings.Contains(text, w) {
			f.t.Errorf("%s: the text does not say %q:\n%s", id, w, text)
		}
	}
	return e
}

// awaitExplained waits until the explanation of a task is as wanted.
func (f *fleet) awaitExplained(id string, wanted func(*Explanation) bool) {
	f.t.Helper()
	inspector := NewInspector(f.rdb)
	f.awaitThat(20*time.Second, func() (bool, string) {
		e, err := inspector.Explain(f.t.Context(), id, "")
		if err != nil {
			return false, err.Error()
		}
		return wanted(e), fmt.Sprintf("%+v", *e)
	})
}

func TestExplainParked(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stopped)
	f.work(nil)
	f.enqueue("x:limited", "first")
	f.await(1, 5*time.Second)
	for i := range 3 {
		f.enqueue("x:limited", fmt.Sprint("job", i))
		f.awaitParked("api", int64(i+1))
	}
	f.awaitState("job2", asynq.TaskStateRetry)
	e := f.explain("job2", `limit "api" holds it since`, "2 jobs are before it", "is full: 1 used", "1/1h")
	if e.State != StateParked || e.Ahead == nil || *e.Ahead != 2 || e.Called || e.Limiter == nil || e.Limiter.Name != "api" || e.Servers != 1 {
		t.Errorf("%+v", *e)
	}
	if ago := e.At.Sub(e.Since); ago < 0 || ago > time.Minute {
		t.Errorf("parked since %v at %v", e.Since, e.At)
	}
	// One permit an hour, two tasks ahead: its permit is due after almost three.
	if in := e.ComesBack.Sub(e.At); in < 170*time.Minute || in > 181*time.Minute {
		t.Errorf("comes back in %v, want almost 3h", in)
	}

	api := f.limiter("api")
	if err := api.Pause(t.Context(), 30*time.Minute); err != nil {
		t.Fatal(err)
	}
	if e := f.explain("job0", "is paused for another", "no job is before it"); e.Limiter.PausedUntil.IsZero() {
		t.Errorf("%+v", e.Limiter)
	}
	if err := f.inspector.PauseQueue("default"); err != nil {
		t.Fatal(err)
	}
	f.explain("job0", "Queue default is paused in asynq")
}

// TestExplainCalled: a task that its limiter has called is on its way.
func TestExplainCalled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stopped)
	stop := f.work(nil)
	f.enqueue("x:limited", "first")
	f.await(1, 5*time.Second)
	f.enqueue("x:limited", "second")
	f.awaitParked("api", 1)
	f.awaitState("second", asynq.TaskStateRetry)
	stop()
	f.call("api", 1)
	e := f.explain("second", "is pending", "no job is before it", `limit "api", which has called it`, "No running worker serves queue default")
	if e.State != "pending" || !e.Called || e.Servers != 0 {
		t.Errorf("%+v", *e)
	}
	if _, err := f.limiter("api").Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.explain("second", `no limit "api" any more`)
}

func TestExplainWhatNoLimitHolds(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
pools: [ { name: default, concurrency: 2, max_waiting: 1 } ]
jobs: { "x:capped": { max_in_flight: 1, hold: 0 } }
log: { level: warn }
`)
	for i := range 3 {
		f.enqueue("x:free", fmt.Sprint("waits", i))
	}
	e := f.explain("waits2", "is pending", "2 jobs are before it", "No limit holds it", "No running worker serves queue default")
	if e.Ahead == nil || *e.Ahead != 2 || e.Limiter != nil {
		t.Errorf("%+v", *e)
	}
	f.enqueue("x:free", "later", asynq.ProcessIn(time.Hour))
	if e := f.explain("later", "is scheduled: it may start at"); e.ComesBack.IsZero() {
		t.Errorf("%+v", *e)
	}
	f.enqueue("x:free", "grouped", asynq.Group("letters"))
	f.explain("grouped", `group "letters"`)

	release := make(chan struct{})
	f.work(func(ctx context.Context, task *asynq.Task) error {
		switch id, _ := asynq.GetTaskID(ctx); id {
		case "running", "capped":
			<-release
		case "fails":
			return errors.New("no such account")
		case "hopeless":
			return fmt.Errorf("bad address: %w", asynq.SkipRetry)
		}
		return nil
	})
	defer close(release)
	f.await(3, 5*time.Second)

	f.enqueue("x:free", "fails", asynq.MaxRetry(5))
	f.awaitState("fails", asynq.TaskStateRetry)
	if e := f.explain("fails", "failed", "no such account", "retry 1 of 5"); e.PutOff || e.Since.IsZero() || e.ComesBack.IsZero() {
		t.Errorf("%+v", *e)
	}
	f.enqueue("x:free", "hopeless", asynq.MaxRetry(5))
	f.awaitState("hopeless", asynq.TaskStateArchived)
	f.explain("hopeless", "is archived: it failed for good", "bad address", "0 of 5 retries")
	f.enqueue("x:free", "done", asynq.Retention(time.Hour))
	f.awaitState("done", asynq.TaskStateCompleted)
	f.explain("done", "is completed: it was done")
	f.enqueue("x:free", "shelved", asynq.ProcessIn(time.Hour))
	if err := f.inspector.ArchiveTask("default", "shelved"); err != nil {
		t.Fatal(err)
	}
	f.explain("shelved", "archived without having failed")
	if _, err := producer.New(f.rdb).Enqueue(t.Context(), producer.Job{Type: "x:free", ID: "ours", MaxRetry: 7, ProcessIn: time.Hour}); err != nil {
		t.Fatal(err)
	}
	f.enqueueEarlier("x:free", "earlier", 7, asynq.ProcessIn(time.Hour))
	for _, id := range []string{"ours", "earlier"} {
		if e := f.explain(id); e.MaxRetry != 7 {
			t.Errorf("%s: max retry %d, want the 7 that its producer asked for", id, e.MaxRetry)
		}
	}

	f.enqueue("x:capped", "capped")
	f.awaitState("capped", asynq.TaskStateActive)
	f.enqueue("x:capped", "putoff")
	f.awaitState("putoff", asynq.TaskStateRetry)
	if e := f.explain("putoff", "was put off", "in no limit's line", "max_in_flight"); !e.PutOff {
		t.Errorf("%+v", *e)
	}
	// asynq tells who runs what every few seconds.
	f.awaitExplained("capped", func(e *Explanation) bool { return e.Worker != "" && !e.Since.IsZero() })
	f.explain("capped", "is active", "has it in a slot since", "only that worker knows")
}

// TestExplainCopy: a task that goes on as a copy, which versions before this
// one made of tasks on their last attempt, is found.
func TestExplainCopy(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stopped)
	f.work(nil)
	f.enqueue("x:limited", "first")
	f.await(1, 5*time.Second)
	f.enqueue("x:limited", "last"+jobview.CopySuffix, asynq.MaxRetry(1))
	f.awaitParked("api", 1)
	f.awaitExplained("last", func(e *Explanation) bool { return e.State == StateParked })
	if e := f.explain("last", `goes on as "last~1"`, `limit "api" holds it`); e.ID != "last"+jobview.CopySuffix || e.CopyOf != "last" {
		t.Errorf("%+v", *e)
	}
}

func TestExplainErrors(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stopped)
	inspector := NewInspector(f.rdb)
	if _, err := inspector.Explain(t.Context(), "nobody", ""); !errors.Is(err, asynq.ErrTaskNotFound) || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("no queue at all: %v", err)
	}
	f.enqueue("x:free", "twin")
	f.enqueue("x:free", "twin", asynq.Queue("low"))
	f.enqueue("x:free", "only", asynq.Queue("low"))
	var ambiguous *AmbiguousTaskError
	if _, err := inspector.Explain(t.Context(), "twin", ""); !errors.As(err, &ambiguous) || len(ambiguous.Queues) != 2 {
		t.Errorf("in two queues: %v", err)
	}
	if e, err := inspector.Explain(t.Context(), "twin", "low"); err != nil || e.Queue != "low" {
		t.Errorf("with its queue: %+v, %v", e, err)
	}
	if _, err := inspector.Explain(t.Context(), "only", "default"); !errors.Is(err, asynq.ErrTaskNotFound) {
		t.Errorf("in another queue: %v", err)
	}
	if _, err := inspector.Explain(t.Context(), "only", "nowhere"); !errors.Is(err, asynq.ErrQueueNotFound) || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("no such queue: %v", err)
	}
}

// TestExplainCosts: the costs of the tasks ahead decide when a task's permits are due.
func TestExplainCosts(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { api: { rate: 10/1h, type: per_client } }
jobs: { "x:limited": { limits: [api], hold: 0, permits: header.cost } }
log: { level: warn }
`)
	f.work(nil)
	for i, cost := range []string{"10", "10", "10", "1"} {
		task := asynq.NewTaskWithHeaders("x:limited", nil, map[string]string{"cost": cost})
		if _, err := f.client.Enqueue(task, asynq.TaskID(fmt.Sprint("job", i))); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			f.await(1, 5*time.Second)
			continue
		}
		f.awaitParked("api", int64(i))
	}
	f.awaitState("job3", asynq.TaskStateRetry)
	e := f.explain("job3", "for each worker", "2 jobs are before it")
	if in := e.ComesBack.Sub(e.At); in < 170*time.Minute || in > 181*time.Minute {
		t.Errorf("comes back in %v, want almost 3h: 20 permits are ahead", in)
	}
}

// TestExplainCosts: a job that costs different numbers of its limits is explained by
// what it costs of the one that holds it.
func TestExplainCostsByLimit(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { requests: { rate: 100/1h }, tokens: { rate: 1000/1h } }
jobs: { "x:llm": { limits: [requests, tokens], hold: 0, permits: { tokens: payload.estimate } } }
`)
	f.work(nil)
	for i, estimate := range []int{900, 600, 300} {
		task := asynq.NewTask("x:llm", fmt.Appendf(nil, `{"estimate": %d}`, estimate))
		if _, err := f.client.Enqueue(task, asynq.TaskID(fmt.Sprint("llm", i))); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			f.await(1, 5*time.Second)
		} else {
			f.awaitParked("tokens", int64(i))
		}
	}
	e := f.explain("llm2", `limit "tokens" holds it since`, "1 job is before it", "has 100 free now: 900 used", "The job costs 300 of its permits.")
	if e.Limiter == nil || e.Limiter.Cost != 300 || e.Limiter.Name != "tokens" {
		t.Errorf("%+v", e.Limiter)
	}
	tasks, err := NewInspector(f.rdb).Parked(t.Context(), "tokens", 0, 10)
	if err != nil || len(tasks) != 2 || tasks[0].Permits != 600 || tasks[1].Permits != 300 {
		t.Errorf("in line %+v, %v, want tasks of 600 and 300 permits", tasks, err)
	}
	if in := e.ComesBack.Sub(e.At); in < 40*time.Minute || in > 2*time.Hour {
		t.Errorf("comes back in %v, want about an hour: 900 permits, of which 100 are free", in)
	}
}
