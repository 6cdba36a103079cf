package asynqlimit_test

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// commandCalls is how often each command was called on the server, scripts' calls
// included.
func (s *site) commandCalls() map[string]int {
	s.t.Helper()
	info, err := s.rdb.Info(s.t.Context(), "commandstats").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	calls := map[string]int{}
	for lines := bufio.NewScanner(strings.NewReader(info)); lines.Scan(); {
		name, figures, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "cmdstat_"), ":")
		var n int
		if _, err := fmt.Sscanf(figures, "calls=%d,", &n); err == nil {
			calls[name] = n
		}
	}
	return calls
}

// TestCostOfWaiting: of a backlog behind a limit, jobs park many at a time, and whoever
// calls them has them at once: they do not go through their queue again.
func TestCostOfWaiting(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	const jobs = 1000
	for i := range jobs {
		s.enqueue("x:job", fmt.Sprint("job", i))
	}
	before := s.commandCalls()
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
	through := s.commandCalls()["rpush"] - before["rpush"]
	t.Logf("%d of %d jobs went back through their queue; %d parked, by %d calls", through, jobs, tasks.Load(), calls.Load())
	if through > jobs/5 {
		t.Errorf("%d of %d jobs went back through their queue", through, jobs)
	}
	if 4*calls.Load() > tasks.Load() {
		t.Errorf("%d jobs parked by %d calls", tasks.Load(), calls.Load())
	}
	s.awaitDone("default", 5*time.Second)
}

// TestErrorOfParkedJobs: asynq's tools say of each job that is in line that its limit throttles
// it, also of those that parked without being tried.
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
