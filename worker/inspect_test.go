package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// awaitLine waits until what the Inspector says of the limiter's line is as wanted.
func (f *fleet) awaitLine(limiter string, holds func(Line) bool) {
	f.t.Helper()
	inspector := NewInspector(f.rdb)
	f.awaitThat(20*time.Second, func() (bool, string) {
		lines, err := inspector.LinesOf(f.t.Context(), limiter)
		if err != nil {
			f.t.Fatal(err)
		}
		return holds(lines[0]), fmt.Sprintf("%+v", lines[0])
	})
}

func TestInspectorReadsLines(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { api: { rate: 10/1h }, account: { rate: 1/1h, key: queue } }
pools: [ { name: default, concurrency: 4, queues: {default: 1, other: 1} } ]
jobs: { "x:limited": { limits: [api], hold: 0, permits: header.cost }, "x:account": { limits: [account], hold: 0 } }
log: { level: warn }
`)
	ctx := t.Context()
	inspector := NewInspector(f.rdb)
	if lines, err := inspector.Lines(ctx); err != nil || len(lines) != 0 {
		t.Errorf("before any task: lines %+v, error %v", lines, err)
	}
	f.work(nil)
	costing := func(id string, cost int) {
		t.Helper()
		task := asynq.NewTaskWithHeaders("x:limited", nil, map[string]string{"cost": fmt.Sprint(cost)})
		if _, err := f.client.Enqueue(task, asynq.TaskID(id)); err != nil {
			t.Fatal(err)
		}
	}
	costing("first", 10)
	f.await(1, 5*time.Second)
	before, err := f.rdb.Time(ctx).Result()
	if err != nil {
		t.Fatal(err)
	}
	for i, cost := range []int{3, 1, 7} {
		costing(fmt.Sprint("parked", i), cost)
		f.awaitLine("api", func(l Line) bool { return l.Parked == int64(i+1) })
	}
	f.enqueue("x:account", "account0", asynq.Queue("other"))
	f.await(2, 5*time.Second) // or its permit may be stale on a busy machine, and the other one comes first
	f.enqueue("x:account", "account1", asynq.Queue("other"))
	f.awaitLine("account:other", func(l Line) bool { return l.Parked == 1 })

	lines, err := inspector.Lines(ctx)
	if err != nil || len(lines) != 2 || lines[0] != (Line{Limiter: "account:other", Parked: 1}) || lines[1] != (Line{Limiter: "api", Parked: 3}) {
		t.Errorf("lines %+v, error %v, want 1 for account:other and 3 for api", lines, err)
	}
	tasks, err := inspector.Parked(ctx, "api", 0, 10)
	if err != nil || len(tasks) != 3 {
		t.Fatalf("parked %+v, error %v, want 3", tasks, err)
	}
	last := before.Truncate(time.Millisecond)
	for i, cost := range []int64{3, 1, 7} {
		if p := tasks[i]; p.ID != fmt.Sprint("parked", i) || p.Queue != "default" || p.Permits != cost || p.Since.Before(last) || p.Since.Sub(before) > time.Minute {
			t.Errorf("%+v, want parked%d with %d permits, since %v or later", p, i, cost, last)
		}
		last = tasks[i].Since
	}
	if page, err := inspector.Parked(ctx, "api", 1, 1); err != nil || len(page) != 1 || page[0] != tasks[1] {
		t.Errorf("the second: %+v, %v, want %+v", page, err, tasks[1])
	}
	if none, err := inspector.Parked(ctx, "api", 3, 5); err != nil || len(none) != 0 {
		t.Errorf("beyond the end: %+v, %v", none, err)
	}
}

// call brings n tasks back from a limiter's line, whatever the limiter says.
func (f *fleet) call(limiter string, n int64) {
	f.t.Helper()
	parked := time.Now() // a task stays in line for a second at least
	f.awaitThat(10*time.Second, func() (bool, string) {
		if time.Since(parked) < time.Second+100*time.Millisecond {
			return false, "they have parked just now"
		}
		brought, err := line.New(f.rdb).Bring(f.t.Context(), []string{"default"}, [][]line.Visit{{{Line: limiter, Permits: n, Next: time.Hour}}})
		if err != nil {
			f.t.Fatal(err)
		}
		n -= brought[0][0].Called
		return n <= 0, fmt.Sprintf("%d more tasks to call", n)
	})
}

// TestSinceIsTheFirstParking: a task that comes back and is denied keeps the time since when it waits.
func TestSinceIsTheFirstParking(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stopped)
	f.work(nil)
	f.enqueue("x:limited", "first")
	f.await(1, 5*time.Second)
	f.enqueue("x:limited", "second")
	f.awaitParked("api", 1)
	f.awaitState("second", asynq.TaskStateRetry) // asynq writes it shortly after it is parked
	inspector := NewInspector(f.rdb)
	since := func() time.Time {
		tasks, err := inspector.Parked(t.Context(), "api", 0, 1)
		if err != nil || len(tasks) != 1 {
			t.Fatalf("%+v, %v, want one task", tasks, err)
		}
		return tasks[0].Since
	}
	parked := since()
	// Called by hand, as the puller does when permits come due; nothing is free, so it is denied.
	before := f.putOff()
	f.call("api", 1)
	f.awaitThat(10*time.Second, func() (bool, string) { return f.putOff() > before, "not put off again" })
	f.awaitParked("api", 1)
	if again := since(); !again.Equal(parked) {
		t.Errorf("parked since %v, after another denial since %v", parked, again)
	}
	// Once it runs, nothing is left.
	if _, err := f.limiter("api").UpdateRate(t.Context(), throttle.Rate{Permits: 100, Interval: time.Second}); err != nil {
		t.Fatal(err)
	}
	f.await(2, 10*time.Second)
	f.awaitThat(10*time.Second, func() (bool, string) {
		keys := f.rdb.Keys(t.Context(), "*:jt:*").Val()
		return len(keys) == 0, fmt.Sprintf("keys left: %v", keys)
	})
}

// TestParkedInOrder: tasks of several queues are listed in the order in which
// they are called, wherever a page begins, and those that nobody runs come last.
func TestParkedInOrder(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { api: { rate: 1/1h } }
pools: [ { name: default, concurrency: 10, queues: {high: 3, low: 1, idle: 1} } ]
jobs: { "x:limited": { limits: [api], hold: 0 } }
log: { level: warn }
`)
	stop := f.work(nil)
	f.enqueue("x:limited", "first", asynq.Queue("idle"))
	f.await(1, 5*time.Second)
	for _, queue := range []string{"idle", "low", "high"} {
		for i := range 600 {
			f.enqueue("x:limited", fmt.Sprint(queue, i), asynq.Queue(queue))
		}
	}
	f.awaitParked("api", 1800)
	if err := f.inspector.PauseQueue("idle"); err != nil {
		t.Fatal(err)
	}
	inspector := NewInspector(f.rdb)
	f.awaitThat(5*time.Second, func() (bool, string) {
		last, err := inspector.Parked(t.Context(), "api", 1200, 600)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range last {
			if task.Queue != "idle" {
				return false, fmt.Sprintf("%+v is among the last", task)
			}
		}
		return len(last) == 600, fmt.Sprintf("%d last", len(last))
	})
	all, err := inspector.Parked(t.Context(), "api", 0, 1800)
	if err != nil || len(all) != 1800 {
		t.Fatal(len(all), err)
	}
	high := 0
	for _, task := range all[:400] {
		if task.Queue == "high" {
			high++
		}
	}
	if high < 290 || high > 310 {
		t.Errorf("%d of the first 400 are of the queue of weight 3, want 300", high)
	}
	for from := int64(1); from < 1800; from += 171 {
		page, err := inspector.Parked(t.Context(), "api", from, 50)
		if err != nil {
			t.Fatal(err)
		}
		for i, task := range page {
			if task != all[from+int64(i)] {
				t.Fatalf("%d on from %d: %+v, want %+v", i, from, task, all[from+int64(i)])
			}
		}
	}
	for at := 0; at < 1800; at += 299 {
		e, err := inspector.Explain(t.Context(), all[at].ID, all[at].Queue)
		if err != nil || e.Ahead == nil || *e.Ahead != int64(at) {
			t.Errorf("%s, at %d: %+v, %v", all[at].ID, at, e, err)
		}
	}
	stop()
}
