package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// isOrder reports whether a command tells Redis the limits of tasks, and isTake whether it takes
// tasks from their queue.
func isOrder(cmd redis.Cmder) bool {
	args := cmd.Args()
	return len(args) > 3 && args[2] == 1 && strings.HasSuffix(fmt.Sprint(args[3]), ":jt:untold")
}

func isTake(cmd redis.Cmder) bool {
	args := cmd.Args()
	return len(args) > 4 && strings.HasSuffix(fmt.Sprint(args[3]), ":pending") && strings.HasSuffix(fmt.Sprint(args[4]), ":paused")
}

func hour(int, error, *asynq.Task) time.Duration { return time.Hour }

// firstFails makes the first job of the first key fail.
func firstFails(id string) bool { return id == "c00-000" }

// TestOrderAfterTrouble: Redis gives no answer when a job comes for the first time, or again
// after it failed. Then the job waits beside the others of its key, and they wait for it. When
// Redis answers again, they go on in order.
func TestOrderAfterTrouble(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"new": false, "failed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, k := newSite(t, redistest.Start(t)), newKeeping()
			var refuses atomic.Bool
			rdb := s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if refuses.Load() && isOrder(cmd) {
					err := redisError("ERR no")
					cmd.SetErr(err)
					return err
				}
				return next(ctx, cmd)
			})
			s.serve(member{rdb: rdb, yaml: ordersYAML, asynq: asynq.Config{Concurrency: 4, RetryDelayFunc: hour},
				handle: k.run(func(id string) bool { return again && firstFails(id) })})
			if again {
				s.enqueueOrders(1, 0, 4)
				s.awaitWaiting("default", 4)
			}
			refuses.Store(true)
			if again {
				if err := s.inspector.RunTask("default", "c00-000"); err != nil {
					t.Fatal(err)
				}
				<-time.After(100 * time.Millisecond)
				s.awaitWaiting("default", 4)
			} else {
				s.enqueueOrders(1, 0, 1)
				s.awaitWaiting("default", 1)
			}
			refuses.Store(false)
			if !again {
				s.enqueueOrders(1, 1, 4)
			}
			s.awaitEmpty("default", 10*time.Second)
			k.check(t, 1, 4)
		})
	}
}

// TestOrderOfOthersGoesOn: a process has taken a job and does not say what the job needs, because
// the answer was lost, or because the process does not know such limits. Jobs of other keys wait
// briefly, not until that job is done.
func TestOrderOfOthersGoesOn(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a lost take", "a job without limits"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			var once sync.Once
			happened, done := make(chan struct{}), make(chan struct{})
			rdb := s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				err := next(ctx, cmd)
				lost := name == "a lost take" && isTake(cmd) && err == nil
				if lost || name != "a lost take" && isOrder(cmd) {
					once.Do(func() {
						err = errors.New("read: connection reset by peer")
						cmd.SetErr(err)
						close(happened)
					})
				}
				return err
			})
			if name == "a lost take" {
				s.enqueueOrders(1, 0, 1)
			} else {
				s.enqueue("y", "y-long")
			}
			s.serve(member{rdb: rdb, yaml: strings.Replace(ordersYAML, "[customer]", "[customer], hold: 60s", 1), asynq: asynq.Config{Concurrency: 3},
				handle: func(ctx context.Context, _ *asynq.Task) error {
					if id, _ := asynq.GetTaskID(ctx); id == "y-long" {
						<-done
					}
					return nil
				}})
			defer close(done)
			<-happened
			for n := range 4 {
				s.enqueuePayload("x", fmt.Sprintf("d%02d", n), fmt.Appendf(nil, `{"customer":"d%d"}`, n))
			}
			s.awaitStarts("d", 4, 5*time.Second)
		})
	}
}

// TestOrderAfterAChange: jobs wait under in_flight 2 when the configuration changes to 1. They go
// on, and jobs that come later start after them.
func TestOrderAfterAChange(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	release := make(chan struct{})
	hold := func(context.Context, *asynq.Task) error { <-release; return nil }
	two := strings.NewReplacer("in_flight: 1", "in_flight: 2", "[customer]", "[customer], hold: 0").Replace(ordersYAML)
	s.serve(member{name: "two", yaml: two, handle: hold})
	s.enqueueOrders(1, 0, 4)
	s.await(10*time.Second, func() (bool, string) {
		q := s.queue("default")
		return q.Active == 2 && q.Retry == 2, fmt.Sprintf("%+v", q)
	})
	s.serve(member{name: "one", yaml: ordersYAML, handle: hold})
	s.enqueueOrders(1, 4, 6)
	<-time.After(500 * time.Millisecond)
	close(release)
	s.awaitEmpty("default", 15*time.Second)
}

// TestOrderWhenTheClockIsSetBack: a job that comes after Redis's clock was set back is behind
// those that came before.
func TestOrderWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	s, k := newSite(t, m.Addr()), newKeeping()
	now := time.Now()
	m.SetTime(now)
	s.serve(member{yaml: ordersYAML, asynq: asynq.Config{RetryDelayFunc: hour}, handle: k.run(firstFails)})
	s.enqueueOrders(1, 0, 1)
	s.awaitWaiting("default", 1)
	m.SetTime(now.Add(-time.Second))
	s.enqueueOrders(1, 1, 2)
	<-time.After(time.Second)
	if starts := s.seen("c00-001"); len(starts) > 0 {
		t.Error("the second ran, while the first waits to be retried")
	}
}

// TestOrderBesideManyThatFailed: the first jobs of 500 customers have failed, and keep others
// waiting. A customer whose jobs succeed does not wait for those.
func TestOrderBesideManyThatFailed(t *testing.T) {
	s, k := newSite(t, redistest.Start(t)), newKeeping()
	s.serve(member{yaml: ordersYAML, asynq: asynq.Config{Concurrency: 50, RetryDelayFunc: hour}, handle: k.run(func(id string) bool { return strings.HasPrefix(id, "s") })})
	for n := range 2 {
		for c := range 500 {
			s.enqueuePayload("x", fmt.Sprintf("s%04d-%d", c, n), fmt.Appendf(nil, `{"customer":"s%d"}`, c))
		}
	}
	s.awaitWaiting("default", 1000)
	began := time.Now()
	s.enqueueOrders(1, 0, 100)
	s.awaitStarts("c00", 100, 20*time.Second) // with 1,000 customers it took 91 s when those used up the visits of its line, and now takes 8 s
	t.Logf("100 jobs in %v", time.Since(began))
}

// TestOrderBesideMaxInFlight: jobs that wait for a job that failed leave it room in
// max_in_flight.
func TestOrderBesideMaxInFlight(t *testing.T) {
	t.Parallel()
	s, k := newSite(t, redistest.Start(t)), newKeeping()
	s.serve(member{yaml: strings.Replace(ordersYAML, "[customer]", "[customer], max_in_flight: 3, hold: 20s", 1),
		asynq: asynq.Config{RetryDelayFunc: quickly, DelayedTaskCheckInterval: 100 * time.Millisecond}, handle: k.run(firstFails)})
	s.enqueueOrders(1, 0, 8)
	s.awaitEmpty("default", 10*time.Second)
	k.check(t, 1, 8)
}

// TestOrderLeavesNothing: a job that ends while its process drains also leaves its order.
func TestOrderLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	release := make(chan struct{})
	stop := s.serve(member{yaml: ordersYAML, handle: func(context.Context, *asynq.Task) error { <-release; return nil }})
	s.enqueueOrders(3, 0, 1)
	s.awaitStarts("c", 3, 10*time.Second)
	time.AfterFunc(200*time.Millisecond, func() { close(release) })
	stop()
	s.awaitNothing("default")
}

// TestEndedIsOnlyWhatHas: a task was run again before Redis heard that it had ended. It keeps its
// position in the order.
func TestEndedIsOnlyWhatHas(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	ctx, lines := t.Context(), line.New(s.rdb)
	take := func(id string) []line.Ordered {
		s.enqueue("x", id)
		got, err := lines.Take(ctx, "default", time.Now().Add(time.Minute).Unix(), 1, true)
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		return []line.Ordered{{ID: id, First: got[0].First, Limiters: []string{"customer:c0"}}}
	}
	a := take("a")
	b := take("b")
	for _, of := range [][]line.Ordered{a, b} {
		if _, err := lines.Order(ctx, "default", of); err != nil {
			t.Fatal(err)
		}
	}
	if err := lines.Ended(ctx, "default", a); err != nil {
		t.Fatal(err)
	}
	if got, err := lines.Order(ctx, "default", b); err != nil || got[0].IsNext || got[0].Behind != "customer:c0" {
		t.Errorf("%+v, %v: the first is active", got, err)
	}
	s.rdb.Del(ctx, line.TaskKey("default", "a"))
	if got, err := lines.Order(ctx, "default", b); err != nil || !got[0].IsNext {
		t.Errorf("%+v, %v: the first is gone", got, err)
	}
}
