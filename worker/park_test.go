package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

const stopped = `
limits: { api: { rate: 1/1h } }
pools: [ { name: default, concurrency: 4, queues: {critical: 6, default: 3, low: 1} } ]
jobs: { "x:limited": { limits: [api], hold: 100ms } }
log: { level: warn }
`

func (f *fleet) limiter(name string) *throttle.Limiter {
	f.t.Helper()
	c, err := throttle.New(f.rdb, throttle.Options{})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	l, err := c.Limiter(name)
	if err != nil {
		f.t.Fatal(err)
	}
	return l
}

// usage is the usage of a limiter, which has to exist.
func (f *fleet) usage(name string) operate.FleetUsage {
	f.t.Helper()
	found, err := operate.NewFleet(f.rdb).Inspect(f.t.Context(), name)
	if err != nil || len(found) != 1 {
		f.t.Fatalf("%d limiters named %q, %v", len(found), name, err)
	}
	return found[0]
}

// pin keeps workers that start from changing a limiter.
func (f *fleet) pin(name string) {
	f.t.Helper()
	if err := operate.NewFleet(f.rdb).Pin(f.t.Context(), name); err != nil {
		f.t.Fatal(err)
	}
}

// awaitParked waits until n tasks are in the limiter's line.
func (f *fleet) awaitParked(limiter string, n int64) {
	f.t.Helper()
	f.awaitThat(20*time.Second, func() (bool, string) {
		got := f.parked(limiter)
		return got == n, fmt.Sprintf("%d tasks parked, want %d", got, n)
	})
}

func TestQueuesByWeight(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stopped)
	f.work(nil)
	f.enqueue("x:limited", "first")
	f.await(1, 5*time.Second)
	for i := range 100 {
		f.enqueue("x:limited", fmt.Sprint("low", i), asynq.Queue("low"))
	}
	f.awaitParked("api", 100)
	for i := range 12 {
		f.enqueue("x:limited", fmt.Sprint("critical", i), asynq.Queue("critical"))
	}
	f.awaitParked("api", 112)
	if _, err := f.limiter("api").UpdateRate(t.Context(), throttle.Rate{Permits: 20, Interval: time.Second, Smooth: true}); err != nil {
		t.Fatal(err)
	}
	critical := 0
	for _, s := range f.await(21, 10*time.Second)[1:21] {
		if s.id[0] == 'c' {
			critical++
		}
	}
	if critical != 12 {
		t.Errorf("%d of the first 20 starts were critical, want all 12", critical)
	}
}

// TestCalledTasksPassTheBacklog: tasks that are called come next, in the order in which they
// are due, however many are pending. Those would only park behind them.
func TestCalledTasksPassTheBacklog(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stopped)
	stop := f.work(nil)
	f.enqueue("x:limited", "first")
	f.await(1, 5*time.Second)
	const parked = 8
	for i := range parked {
		f.enqueue("x:limited", fmt.Sprint("parked", i))
	}
	f.awaitParked("api", parked)
	stop()
	for i := range 100 {
		f.enqueue("x:limited", fmt.Sprint("fresh", i))
	}
	var want []string
	line, err := NewInspector(f.rdb).Parked(t.Context(), "api", 0, 2*parked)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range line {
		want = append(want, task.ID)
	}
	if _, err := f.limiter("api").UpdateRate(t.Context(), throttle.Rate{Permits: 100, Interval: time.Second}); err != nil {
		t.Fatal(err)
	}
	f.call("api", parked)
	pending := f.rdb.LRange(t.Context(), "asynq:{default}:pending", 0, -1).Val()
	slices.Reverse(pending) // asynq takes from the end
	if len(pending) != parked+100 || !slices.Equal(pending[:parked], want) {
		t.Errorf("of %d pending tasks these come next: %v; want %v of %d", len(pending), pending[:min(parked, len(pending))], want, parked+100)
	}
}

func TestTasksGoneLeaveTheLine(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stopped)
	f.work(nil)
	for i := range 21 {
		f.enqueue("x:limited", fmt.Sprint(i))
	}
	f.awaitParked("api", 20)
	if _, err := f.inspector.DeleteAllRetryTasks("default"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.limiter("api").UpdateRate(t.Context(), throttle.Rate{Permits: 100, Interval: time.Second}); err != nil {
		t.Fatal(err)
	}
	f.awaitThat(10*time.Second, func() (bool, string) {
		keys := f.rdb.Keys(t.Context(), "*:jt:*").Val()
		return len(keys) == 0, fmt.Sprintf("keys left: %v", keys)
	})
}

func TestDrainGivesWaitingTasksBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { api: { rate: 1/3s } }
pools: [ { name: default, concurrency: 4, max_waiting: 4 } ]
jobs: { "x:limited": { limits: [api], hold: forever } }
log: { level: warn }
`)
	for i := range 4 {
		f.enqueue("x:limited", fmt.Sprint(i), asynq.MaxRetry(i%2))
	}
	stop := f.work(nil)
	f.await(1, 5*time.Second)
	f.awaitThat(5*time.Second, func() (bool, string) {
		u := f.usage("api")
		return u.Reserved >= 1, fmt.Sprintf("%d reserved", u.Reserved)
	})
	before := time.Now()
	stop()
	if d := time.Since(before); d > 2*time.Second {
		t.Errorf("draining took %v although nothing ran", d)
	}
	if q, err := f.inspector.GetQueueInfo("default"); err != nil || q.Archived != 0 || q.Active != 0 || q.Size != 3 {
		t.Errorf("after the drain: %+v, %v, want 3 tasks, none active, none archived", q, err)
	}
	f.work(nil)
	f.await(4, 20*time.Second)
	f.awaitIdle("default", 0)
}

func TestPerClientLimits(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { api: { rate: 30/1s }, each: { rate: 10/1s, type: per_client } }
pools: [ { name: default, concurrency: 8 } ]
jobs: { "x:limited": { limits: [api, each] } }
log: { level: warn }
`)
	const n = 100
	for i := range n {
		f.enqueue("x:limited", fmt.Sprint(i))
	}
	var mu sync.Mutex
	var by [2][]start
	for i := range by {
		f.work(func(ctx context.Context, _ *asynq.Task) error {
			at := f.permits.of(ctx)
			mu.Lock()
			defer mu.Unlock()
			by[i] = append(by[i], start{at: at})
			return nil
		})
	}
	starts := f.await(n, 15*time.Second)
	f.awaitIdle("default", 0)
	for i := range by {
		if got := busiest(by[i], time.Second); got > 10 {
			t.Errorf("worker %d started %d in one second, want at most 10", i, got)
		}
	}
	for i := range by {
		if len(by[i]) < n/4 {
			t.Errorf("worker %d started %d of %d", i, len(by[i]), n)
		}
	}
	t.Logf("%d tasks at 2 x 10 per second took %v", n, starts[n-1].at.Sub(starts[0].at))
}

// asynq counts the wait against the task's time, and ends it with an attempt
// used up: tasks park early enough to have at least half of it when they start.
func TestDeadlineBurnsNothing(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	for _, rate := range []string{"1/4s", "1/1800ms"} { // due after the deadline, and shortly before
		t.Run(rate, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, fmt.Sprintf(`
limits: { api: { rate: %s } }
pools: [ { name: default, concurrency: 4, max_waiting: 4 } ]
jobs: { "x:limited": { limits: [api], hold: forever } }
log: { level: warn }
`, rate))
			f.work(func(ctx context.Context, _ *asynq.Task) error {
				if retried, _ := asynq.GetRetryCount(ctx); retried > 0 {
					t.Errorf("waiting used up %d retries", retried)
				}
				deadline, _ := ctx.Deadline()
				if left := time.Until(deadline); left < timeout*2/5 {
					t.Errorf("started with %v left of %v", left, timeout)
				}
				return nil
			})
			for i := range 2 {
				f.enqueue("x:limited", fmt.Sprint(i), asynq.Timeout(timeout), asynq.MaxRetry(3))
				f.await(i+1, 15*time.Second)
			}
			f.awaitIdle("default", 0)
		})
	}
}

func TestMaxInFlight(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
pools: [ { name: default, concurrency: 8 } ]
jobs: { "x:capped": { max_in_flight: 2 } }
log: { level: warn }
`)
	running := make(chan struct{}, 2)
	for i := range 20 {
		f.enqueue("x:capped", fmt.Sprint(i), asynq.MaxRetry(0))
	}
	f.work(func(ctx context.Context, _ *asynq.Task) error {
		select {
		case running <- struct{}{}:
		default:
			t.Error("a third job runs")
			return errors.New("too many")
		}
		<-time.After(50 * time.Millisecond)
		<-running
		return nil
	})
	f.await(20, 20*time.Second)
	f.awaitIdle("default", 0)
}
