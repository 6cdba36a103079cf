package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// queuesOf is a configuration of one limit whose workers serve these queues.
func queuesOf(queues string) string {
	return fmt.Sprintf(`
limits: { api: { rate: 50/1s } }
pools: [ { name: default, concurrency: 10, queues: {%s} } ]
jobs: { "x:limited": { limits: [api] } }
log: { level: warn }
`, queues)
}

// workOn starts a worker that serves these queues.
func (f *fleet) workOn(queues string) (stop func()) {
	f.t.Helper()
	redis, _, _ := strings.Cut(f.yaml, "\n")
	defer func(yaml string) { f.yaml = yaml }(f.yaml)
	f.yaml = redis + queuesOf(queues)
	return f.work(nil)
}

// parkIn parks n tasks of a queue for the limit api, which is stopped meanwhile.
func (f *fleet) parkIn(queue string, n int) {
	f.t.Helper()
	f.stopLimit()
	before := f.inLine("api")
	for i := range n {
		f.enqueue("x:limited", fmt.Sprint(queue, i), asynq.Queue(queue))
	}
	f.awaitThat(20*time.Second, func() (bool, string) {
		got := f.inLine("api") - before
		return got == int64(n), fmt.Sprintf("%d of %d tasks parked", got, n)
	})
}

// inLine is how many tasks are in line for the limiter, or called from there.
func (f *fleet) inLine(limiter string) int64 {
	f.t.Helper()
	lines, err := NewInspector(f.rdb).LinesOf(f.t.Context(), limiter)
	if err != nil {
		f.t.Fatal(err)
	}
	return lines[0].Parked + lines[0].Called
}

// goOn ends the pause of the limit api.
func (f *fleet) goOn() {
	f.t.Helper()
	if err := f.limiter("api").Resume(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

// startsIn are those of tasks whose ids begin with the name of a queue, or of a task.
func (f *fleet) startsIn(prefix string) (starts []start) {
	for _, s := range f.seen() {
		if strings.HasPrefix(s.id, prefix) {
			starts = append(starts, s)
		}
	}
	return starts
}

func (f *fleet) awaitStartsIn(prefix string, n int, within time.Duration) {
	f.t.Helper()
	f.awaitThat(within, func() (bool, string) {
		got := len(f.startsIn(prefix))
		return got >= n, fmt.Sprintf("%d of %d starts of %s", got, n, prefix)
	})
}

// TestQueueThatNobodyRuns: tasks of a queue that is paused in asynq, or that no
// worker serves, are parked. Those of another queue have the limit for themselves.
// When somebody runs the queue again, its tasks go on.
func TestQueueThatNobodyRuns(t *testing.T) {
	const parked, fresh = 400, 100
	tests := []struct {
		name        string
		stop, again func(f *fleet, stop func())
	}{
		{"paused", func(f *fleet, _ func()) {
			f.workOn("other: 1")
			if err := f.inspector.PauseQueue("idle"); err != nil {
				f.t.Fatal(err)
			}
		}, func(f *fleet, _ func()) {
			if err := f.inspector.UnpauseQueue("idle"); err != nil {
				f.t.Fatal(err)
			}
		}},
		{"paused, beside a queue of the same worker", func(f *fleet, stop func()) {
			stop()
			f.workOn("other: 1, idle: 3")
			if err := f.inspector.PauseQueue("idle"); err != nil {
				f.t.Fatal(err)
			}
		}, func(f *fleet, _ func()) {
			if err := f.inspector.UnpauseQueue("idle"); err != nil {
				f.t.Fatal(err)
			}
		}},
		{"without workers", func(f *fleet, stop func()) {
			f.workOn("other: 1")
			stop()
		}, func(f *fleet, _ func()) { f.workOn("idle: 1") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			measures(t)
			f := newFleet(t, "")
			stop := f.workOn("idle: 1")
			f.parkIn("idle", parked)
			tt.stop(f, stop)
			f.goOn()
			began := time.Now()
			for i := range fresh {
				f.enqueue("x:limited", fmt.Sprint("other", i), asynq.Queue("other"))
			}
			f.awaitStartsIn("other", fresh, 20*time.Second)
			took := time.Since(began)
			t.Logf("%d tasks beside %d that nobody runs took %v", fresh, parked, took)
			if took > 3*time.Second {
				t.Errorf("%d tasks beside %d that nobody runs took %v, want at most 3s", fresh, parked, took)
			}
			if got := len(f.startsIn("idle")); got > 50 { // those that were called when the pause ended
				t.Errorf("%d of the idle queue started", got)
			}
			tt.again(f, stop)
			f.awaitStartsIn("idle", parked, 20*time.Second)
			if most := busiest(f.seen(), time.Second); most > 50 {
				t.Errorf("%d starts in one second, want at most 50", most)
			}
		})
	}
}

// TestQueuesOfDifferentWorkers: queues that different workers serve share a limit by their weights.
func TestQueuesOfDifferentWorkers(t *testing.T) {
	measures(t)
	f := newFleet(t, "")
	stopHeavy, stopLight := f.workOn("heavy: 3"), f.workOn("light: 1")
	f.parkIn("light", 80)
	f.parkIn("heavy", 80)
	stopHeavy()
	stopLight()
	f.workOn("heavy: 3")
	f.workOn("light: 1")
	f.goOn()
	starts := f.await(80, 10*time.Second)[:80]
	heavy := 0
	for _, s := range starts {
		if strings.HasPrefix(s.id, "heavy") {
			heavy++
		}
	}
	t.Logf("%d of the first 80 are of the queue of weight 3", heavy)
	if heavy < 50 || heavy > 70 {
		t.Errorf("%d of the first 80 starts are of the queue of weight 3, want about 60", heavy)
	}
	f.await(160, 10*time.Second)
	if most := busiest(f.seen(), time.Second); most > 50 {
		t.Errorf("%d starts in one second, want at most 50", most)
	}
}

// TestReturnOfAQueue: a queue that nobody ran for a while does not get what it
// missed before those that ran meanwhile get anything.
func TestReturnOfAQueue(t *testing.T) {
	measures(t)
	f := newFleet(t, "")
	f.workOn("other: 1, idle: 1")
	f.parkIn("idle", 100)
	if err := f.inspector.PauseQueue("idle"); err != nil {
		t.Fatal(err)
	}
	f.goOn()
	const others = 200
	for i := range others {
		f.enqueue("x:limited", fmt.Sprint("other", i), asynq.Queue("other"))
	}
	f.awaitStartsIn("other", others/2, 20*time.Second)
	if err := f.inspector.UnpauseQueue("idle"); err != nil {
		t.Fatal(err)
	}
	before := len(f.seen())
	const since = 100 // what starts in two intervals: within one, those of a queue may start before those of the other
	f.await(before+since, 20*time.Second)
	got := 0
	for _, s := range f.seen()[before : before+since] {
		if strings.HasPrefix(s.id, "other") {
			got++
		}
	}
	t.Logf("%d of the %d starts since the queue came back are of the other", got, since)
	if got < 40 {
		t.Errorf("%d of the %d starts since the queue came back are of the other: want about half", got, since)
	}
}

// awaitLast raises the limit api and waits until the task that is parked last has started.
func (f *fleet) awaitLast(id string) {
	f.t.Helper()
	api := f.limiter("api")
	rate, err := api.Config(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	rate.Permits, rate.Interval = 100, time.Second
	if _, err := api.UpdateRate(f.t.Context(), rate); err != nil {
		f.t.Fatal(err)
	}
	f.awaitStartsIn(id, 1, 10*time.Second)
	f.awaitThat(10*time.Second, func() (bool, string) {
		n := f.inLine("api")
		return n == 0, fmt.Sprintf("%d in line", n)
	})
}

// TestDeletedAndEnqueuedAgain: a task is enqueued again under the id of a parked task that was
// deleted. It runs when it is due itself, not when the other would have been.
func TestDeletedAndEnqueuedAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stopped)
	f.work(func(_ context.Context, task *asynq.Task) error {
		if task.Type() == "x:fails" {
			return errors.New("fails")
		}
		return nil
	})
	f.enqueue("x:limited", "first")
	f.await(1, 5*time.Second)
	ids := []string{"tomorrow", "failed"}
	for _, id := range append(ids, "last") {
		f.enqueue("x:limited", id)
		f.awaitState(id, asynq.TaskStateRetry)
	}
	for _, id := range ids {
		if err := f.inspector.DeleteTask("default", id); err != nil {
			t.Fatal(err)
		}
	}
	f.enqueue("x:limited", "tomorrow", asynq.ProcessIn(24*time.Hour))
	f.enqueue("x:fails", "failed", asynq.MaxRetry(3))
	f.awaitStartsIn("failed", 1, 5*time.Second)
	f.awaitState("failed", asynq.TaskStateRetry)
	if e := f.explain("tomorrow", "is scheduled"); e.Limiter != nil {
		t.Errorf("the limiter %+v holds a task that is scheduled", *e.Limiter)
	}
	if e := f.explain("failed", "failed", "retry 1 of 3"); e.Limiter != nil {
		t.Errorf("the limiter %+v holds a task that failed", *e.Limiter)
	}
	f.awaitLast("last")
	if n := len(f.startsIn("tomorrow")); n != 0 {
		t.Errorf("what was enqueued for tomorrow ran today, %d times", n)
	}
	if n := len(f.startsIn("failed")); n != 1 {
		t.Errorf("what failed ran %d times before it was due again", n-1)
	}
	if info := f.awaitState("tomorrow", asynq.TaskStateScheduled); time.Until(info.NextProcessAt) < 23*time.Hour {
		t.Errorf("next processed at %v", info.NextProcessAt)
	}
	if info := f.awaitState("failed", asynq.TaskStateRetry); info.Retried != 1 {
		t.Errorf("%d retries, want 1", info.Retried)
	}
}

// TestLastAttemptsComeBack: tasks that were put off on their last attempt are called as others are.
func TestLastAttemptsComeBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stopped)
	f.work(nil)
	f.enqueue("x:limited", "first")
	f.await(1, 5*time.Second)
	for i := range 20 {
		f.enqueue("x:limited", fmt.Sprint("job", i), asynq.MaxRetry(0))
	}
	f.awaitThat(10*time.Second, func() (bool, string) {
		n := f.putOff()
		return n >= 20, fmt.Sprintf("%d of 20 put off", n)
	})
	began := time.Now()
	f.awaitLast("job19")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("they took %v", took)
	}
	f.await(21, 5*time.Second)
	f.awaitIdle("default", 0)
}
