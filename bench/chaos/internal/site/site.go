//go:build unix

// Package site is the whole system, as processes: a redis-server that saves all that it
// acknowledges, workers that reach it over wires that can be broken, and the judge, which the
// workers call.
package site

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/check"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/judge"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/record"
	"github.com/jobthrottle/jobthrottle/bench/internal/redisserver"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// Queue is the queue of all jobs.
const Queue = "default"

const limitName = "api"

// Plan describes a site.
type Plan struct {
	Limit   check.Limit
	Smooth  bool   // the limit spreads its permits evenly
	Workers int    // processes
	Slots   int    // of each
	Waiting int    // how many jobs may wait beside them
	Hold    string // how long a job waits in the worker
}

// Site is a running system. It is for one goroutine, except where its methods say otherwise.
type Site struct {
	Plan    Plan
	Redis   *redisserver.Server
	Client  *redis.Client // connects to Redis directly
	Workers []*Worker
	Limit   *throttle.Limiter

	programs Programs
	dir      string
	judge    *judge.Judge
	throttle *throttle.Client
	enqueued []string

	mu     sync.Mutex
	levels []check.Level
}

// Start starts Redis and the judge, and sets the limit. Workers start with
// StartWorkers. The files of all processes go to dir. The caller has to Stop it.
func Start(ctx context.Context, programs Programs, plan Plan, dir string) (s *Site, err error) {
	s = &Site{Plan: plan, programs: programs, dir: dir, levels: []check.Level{{Permits: plan.Limit.Permits, To: check.Never}}}
	defer func() {
		if err != nil {
			_, stopped := s.Stop()
			err = errors.Join(err, stopped)
		}
	}()
	if s.Redis, err = redisserver.Start("--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"); err != nil {
		return s, err
	}
	s.Client = redis.NewClient(&redis.Options{Addr: s.Redis.Addr})
	if s.judge, err = judge.Start(filepath.Join(dir, "arrivals")); err != nil {
		return s, err
	}
	if s.throttle, err = throttle.New(s.Client, throttle.Options{}); err != nil {
		return s, err
	}
	if s.Limit, err = s.throttle.Limiter(limitName); err != nil {
		return s, err
	}
	for i := range plan.Workers {
		w, err := newWorker(s, i)
		if err != nil {
			return s, err
		}
		s.Workers = append(s.Workers, w)
	}
	if err := s.Limit.SetRate(ctx, s.Rate(plan.Limit.Permits)); err != nil {
		return s, err
	}
	return s, operate.NewFleet(s.Client).Pin(ctx, limitName) // workers that start must not undo what faults set
}

// StartWorkers starts all workers.
func (s *Site) StartWorkers() error {
	for _, w := range s.Workers {
		if err := w.Start(); err != nil {
			return err
		}
	}
	return nil
}

// Task is a job that calls the judge, with these parameters.
func (s *Site) Task(parameters url.Values) *asynq.Task {
	return asynq.NewTask("http:request", fmt.Appendf(nil, `{"method":"GET","url":"http://%s/?%s"}`, s.judge.Addr, parameters.Encode()))
}

// Enqueue adds n jobs as a user does: from a file, by the command. They are acknowledged when
// it returns.
func (s *Site) Enqueue(ctx context.Context, n int) error {
	var lines strings.Builder
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("job-%d", len(s.enqueued)+i)
		fmt.Fprintf(&lines, `{"type":"http:request","id":%q,"payload":{"method":"GET","url":"http://%s/?job=%s"}}`+"\n", ids[i], s.judge.Addr, ids[i])
	}
	file := filepath.Join(s.dir, "jobs.ndjson")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		return err
	}
	config, err := s.writeConfig("enqueue.yaml", s.Redis.Addr)
	if err != nil {
		return err
	}
	if err := s.programs.enqueue(ctx, config, file); err != nil {
		return err
	}
	s.enqueued = append(s.enqueued, ids...)
	return nil
}

// writeConfig writes the configuration of a process that reaches Redis at addr.
func (s *Site) writeConfig(name, addr string) (string, error) {
	l := s.Plan.Limit
	text := fmt.Sprintf(`redis: { addrs: [%q] }
limits: { %s: { rate: %d/%v, guard: %v, smooth: %t } }
pools: [ { name: default, concurrency: %d, max_waiting: %d } ]
jobs: { "http:request": { limits: [%s], hold: %s } }
http: { allow_hosts: [%q] }
log: { level: info }
`, addr, limitName, l.Permits, l.Interval, l.Guard, s.Plan.Smooth, s.Plan.Slots, s.Plan.Waiting, limitName, s.Plan.Hold, s.judge.Addr)
	file := filepath.Join(s.dir, name)
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// StopWorkers asks all workers to drain, and waits for them. It returns an error if a worker
// ended before, or failed.
func (s *Site) StopWorkers() error {
	for _, w := range s.Workers {
		w.terminate()
	}
	var errs []error
	for _, w := range s.Workers {
		errs = append(errs, w.wait())
	}
	return errors.Join(errs...)
}

// Waiting returns the jobs that asynq still has, in any state except archived (given up) and
// completed.
func (s *Site) Waiting(ctx context.Context) (map[string]bool, error) {
	inspector := asynq.NewInspectorFromRedisClient(s.Client)
	waiting := map[string]bool{}
	for _, list := range []func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error){
		inspector.ListPendingTasks, inspector.ListActiveTasks, inspector.ListScheduledTasks, inspector.ListRetryTasks,
	} {
		const size = 1000
		for page := 1; ; page++ {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			tasks, err := list(Queue, asynq.Page(page), asynq.PageSize(size))
			if err != nil {
				return nil, fmt.Errorf("ask asynq what it still has: %w", err)
			}
			for _, task := range tasks {
				waiting[task.ID] = true
			}
			if len(tasks) < size {
				break
			}
		}
	}
	return waiting, nil
}

// Enqueued returns the ids of the jobs that were acknowledged.
func (s *Site) Enqueued() []string { return slices.Clone(s.enqueued) }

// Stop ends all processes, also those in trouble, and returns what the judge has written down.
func (s *Site) Stop() (arrivals []record.Arrival, err error) {
	for _, w := range s.Workers {
		w.Kill()
		err = errors.Join(err, w.wire.Close())
	}
	if s.judge != nil {
		var stopped error
		arrivals, stopped = s.judge.Stop()
		err = errors.Join(err, stopped)
	}
	if s.throttle != nil {
		_ = s.throttle.Close() // it holds no reservations
	}
	if s.Client != nil {
		err = errors.Join(err, s.Client.Close())
	}
	if s.Redis != nil {
		err = errors.Join(err, s.Redis.Stop())
	}
	return arrivals, err
}
