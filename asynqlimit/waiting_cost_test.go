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

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestCostOfWaiting: jobs of a backlog behind a limit park many at a time.
func TestCostOfWaiting(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	const jobs = 1000
	for i := range jobs {
		s.enqueue("x:job", fmt.Sprint("job", i))
	}
	var calls, tasks atomic.Int64
	rdb := s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if n := parked(cmd); n > 0 {
			calls.Add(1)
			tasks.Add(int64(n))
		}
		return next(ctx, cmd)
	})
	m := member{yaml: `
limits: { api: { rate: 200/1s } }
jobs: { "x:": { limits: [api], hold: 100ms } }
`, asynq: asynq.Config{Concurrency: 50}, rdb: rdb}
	for range 2 {
		s.serve(m)
	}
	s.awaitStarts("job", jobs, 30*time.Second)
	t.Logf("%d of %d jobs parked, by %d calls", tasks.Load(), jobs, calls.Load())
	if 4*calls.Load() > tasks.Load() {
		t.Errorf("%d jobs parked by %d calls", tasks.Load(), calls.Load())
	}
	s.awaitDone("default", 5*time.Second)
}

// TestErrorOfParkedJobs: asynq's tools say of each job in line that its limit throttles it, also
// of jobs that parked without being tried.
func TestErrorOfParkedJobs(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	goOn := s.stopLimit("api", "10/1s")
	defer goOn()
	s.serve(member{yaml: `
limits: { api: { rate: 10/1s } }
jobs: { "x:": { limits: [api], hold: 100ms } }
`})
	const jobs = 200
	for i := range jobs {
		s.enqueue("x:job", fmt.Sprint("job", i), asynq.MaxRetry(3))
	}
	s.awaitWaiting("default", jobs)
	tasks, err := s.inspector.ListRetryTasks("default", asynq.PageSize(jobs))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if !strings.HasPrefix(task.LastErr, `throttled by limiter "api", next try in about `) || time.Since(task.LastFailedAt) > time.Minute || task.Retried != 0 || string(task.Payload) != "" {
			t.Errorf("%s: %q at %v, %d retries, payload %q", task.ID, task.LastErr, task.LastFailedAt, task.Retried, task.Payload)
		}
	}
}

// TestLastAttemptIsTried: a job that has used up its retries is tried before it parks, although
// others are in line for its limit: so whoever ends such jobs sees it, and its error.
func TestLastAttemptIsTried(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	var mu sync.Mutex
	attempts := map[string]int{}
	s.serve(member{yaml: `
limits: { api: { rate: 5/1s } }
jobs: { "x:": { limits: [api], hold: 0 } }
`, asynq: asynq.Config{DelayedTaskCheckInterval: 50 * time.Millisecond, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second }},
		opts: asynqlimit.Options{Attempt: func(next asynq.Handler) asynq.Handler {
			return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				id, _ := asynq.GetTaskID(ctx)
				mu.Lock()
				attempts[id]++
				mu.Unlock()
				return next.ProcessTask(ctx, task)
			})
		}},
		handle: func(ctx context.Context, _ *asynq.Task) error {
			if id, _ := asynq.GetTaskID(ctx); id == "fails" {
				return errors.New("out of luck")
			}
			return nil
		}})
	s.enqueue("x:job", "fails", asynq.MaxRetry(1))
	s.awaitStarts("fails", 1, 10*time.Second)
	goOn := s.stopLimit("api", "5/1s")
	defer goOn()
	for i := range 50 {
		s.enqueue("x:job", fmt.Sprint("job", i))
	}
	s.await(10*time.Second, func() (bool, string) {
		mu.Lock()
		defer mu.Unlock()
		return attempts["fails"] >= 2, fmt.Sprintf("%d attempts", attempts["fails"])
	})
}

// TestOwnPermitsByWeight: queues that two servers of one process serve share the permits that the
// process has for itself by their weights.
func TestOwnPermitsByWeight(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	for i := range 300 {
		s.enqueue("x:job", fmt.Sprint("heavy", i), asynq.Queue("heavy"))
		s.enqueue("x:job", fmt.Sprint("light", i), asynq.Queue("light"))
	}
	m := member{yaml: `
limits: { worker: { rate: 20/1s, type: per_client } }
jobs: { "x:": { limits: [worker], hold: 0 } }
`, asynq: asynq.Config{Queues: map[string]int{"heavy": 9}}}
	m.made = func(l *asynqlimit.Limits) {
		light, mux := l.Another(asynqlimit.Options{Name: "light"}), asynq.NewServeMux()
		mux.HandleFunc("x", s.handler(m))
		s.serveWith(light, asynq.NewServerFromRedisClient(light.Redis(), light.Configure(asynq.Config{Concurrency: 10, LogLevel: asynq.WarnLevel, Queues: map[string]int{"light": 1}})), mux)
	}
	s.serve(m)
	s.awaitStarts("", 100, 30*time.Second)
	heavy, light := len(s.seen("heavy")), len(s.seen("light"))
	t.Logf("%d of the queue of weight 9, %d of that of weight 1", heavy, light)
	if heavy < 3*light { // the first jobs of each run before there is a line
		t.Errorf("%d of the queue of weight 9, %d of that of weight 1", heavy, light)
	}
}

// TestHandlersThatAcquireAreCalled: a handler that gets its permits itself is called although
// others are in line for its limit, because it may find out before that the job makes no sense.
func TestHandlersThatAcquireAreCalled(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	goOn := s.stopLimit("api", "10/1s")
	defer goOn()
	s.serve(member{yaml: `
limits: { api: { rate: 10/1s } }
jobs: { "x:": { limits: [api], hold: 0 }, "y:": { limits: [api], hold: 0 } }
`, opts: asynqlimit.Options{HandlersAcquire: []string{"y"}}})
	const jobs = 50
	for i := range jobs {
		s.enqueue("x:job", fmt.Sprint("job", i))
	}
	s.awaitWaiting("default", jobs)
	for i := range 5 {
		s.enqueue("y:job", fmt.Sprint("own", i))
	}
	s.awaitStarts("own", 5, 10*time.Second)
}

// TestBacklogWithoutLrange: in a rolling deploy the Redis user may have the rights of the version
// before, without lrange. A backlog still parks, keeps its limit busy, and ends.
func TestBacklogWithoutLrange(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	if err := s.rdb.Do(t.Context(), "ACL", "SETUSER", "before", "on", "nopass", "~*", "&*", "+@all", "-lrange").Err(); err != nil {
		t.Fatal(err)
	}
	before := redis.NewClient(&redis.Options{Addr: s.rdb.Options().Addr, Username: "before", Password: "any"})
	t.Cleanup(func() { before.Close() })
	const jobs = 600
	for i := range jobs {
		s.enqueue("x:job", fmt.Sprint("job", i))
	}
	m := member{yaml: `
limits: { api: { rate: 200/1s } }
jobs: { "x:": { limits: [api], hold: 100ms } }
`, rdb: before}
	s.serve(m)
	s.serve(m)
	s.awaitStarts("job", jobs, 10*time.Second)
	s.awaitDone("default", 5*time.Second)
}

// TestParkIsCountedOnce: what Stats counts as parked is what was put into lines, however often a job asked for permits or slots
// before it parked.
func TestParkIsCountedOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	const jobs = 100
	for i := range jobs {
		s.enqueue("x:job", fmt.Sprint("job", i))
	}
	var tasks atomic.Int64
	var all []*asynqlimit.Limits
	m := member{yaml: `
limits: { api: { rate: 2/100ms }, machine: { in_flight: 3 } }
jobs: { "x:": { limits: [api, machine] } }
`, handle: lasting(300 * time.Millisecond), rdb: s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if c, ok := cmd.(*redis.Cmd); ok && err == nil && parked(cmd) > 0 {
			done, _ := c.Int64Slice()
			for _, n := range done { // not those that had moved meanwhile
				tasks.Add(n)
			}
		}
		return err
	}), made: func(l *asynqlimit.Limits) { all = append(all, l) }}
	s.serve(m)
	s.serve(m)
	s.awaitStarts("job", jobs, 30*time.Second)
	s.awaitDone("default", 5*time.Second)
	var api, machine int64
	for _, limits := range all {
		stats := limits.Stats()
		api, machine = api+stats.Limits[0].Parked, machine+stats.Slots[0].Parked
	}
	t.Logf("%d parks: %d for permits, %d for slots", tasks.Load(), api, machine)
	if api+machine != tasks.Load() {
		t.Errorf("%d parks for permits and %d for slots are counted, there were %d", api, machine, tasks.Load())
	}
}
