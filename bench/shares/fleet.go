package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/bench/internal/redisserver"
	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/producer"
	"github.com/jobthrottle/jobthrottle/worker"
)

// payload is the payload of a job.
type payload struct {
	Tenant string `json:"tenant"`
	Cost   int64  `json:"cost"`
	Sent   int64  `json:"sent"` // in nanoseconds after 1970
}

// start is a job that has started.
type start struct {
	payload
	At int64 `json:"at"`
}

// work is a worker process. It writes to its standard output which jobs start.
func work(ctx context.Context, yaml string) error {
	cfg, err := config.Parse("config.yaml", []byte(yaml))
	if err != nil {
		return err
	}
	w, err := worker.New(cfg, zap.NewNop())
	if err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	w.HandleFunc("job", func(_ context.Context, task *asynq.Task) error {
		s := start{At: time.Now().UnixNano()}
		if err := json.Unmarshal(task.Payload(), &s.payload); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		return out.Encode(s)
	})
	return w.Run(ctx)
}

// site is a Redis and its workers.
type site struct {
	server *redisserver.Server
	rdb    *redis.Client
	yaml   string

	mu     sync.Mutex
	starts []start
	stop   []func()
}

// newSite starts a Redis for workers with these settings of the limit api.
func newSite(limit string) (*site, error) {
	server, err := redisserver.Start()
	if err != nil {
		return nil, err
	}
	return &site{server: server, rdb: redis.NewClient(&redis.Options{Addr: server.Addr}), yaml: fmt.Sprintf(`
redis: { addrs: [%q] }
limits: { api: { %s } }
pools: [ { name: main, concurrency: 20 } ]
jobs: { job: { limits: [api], permits: payload.cost } }
`, server.Addr, limit)}, nil
}

func (s *site) close() error {
	for _, stop := range s.stop {
		stop()
	}
	return errors.Join(s.rdb.Close(), s.server.Stop())
}

// serve starts n worker processes.
func (s *site) serve(n int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for range n {
		cmd := exec.Command(self, "--worker", s.yaml)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		var reads sync.WaitGroup
		reads.Go(func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				var st start
				if json.Unmarshal(lines.Bytes(), &st) == nil {
					s.mu.Lock()
					s.starts = append(s.starts, st)
					s.mu.Unlock()
				}
			}
		})
		s.stop = append(s.stop, func() {
			_ = cmd.Process.Signal(os.Interrupt)
			reads.Wait()
			_ = cmd.Wait()
		})
	}
	return nil
}

// enqueue adds jobs, one after the other.
func (s *site) enqueue(ctx context.Context, jobs []payload) error {
	stream := producer.New(s.rdb).Stream(ctx, producer.StreamEvents{Done: func(producer.Result) {}, Outage: func(error) {}})
	for i, j := range jobs {
		j.Cost = max(j.Cost, 1)
		j.Sent = time.Now().UnixNano()
		text, err := json.Marshal(j)
		if err != nil {
			return err
		}
		if err := stream.Add(i+1, producer.Job{Type: "job", Payload: text}); err != nil {
			return err
		}
	}
	return stream.Close()
}

// seen returns the jobs that ran and for which keep is true, in order.
func (s *site) seen(keep func(start) bool) []start {
	s.mu.Lock()
	defer s.mu.Unlock()
	var of []start
	for _, st := range s.starts {
		if keep == nil || keep(st) {
			of = append(of, st)
		}
	}
	slices.SortFunc(of, func(a, b start) int { return int(a.At - b.At) })
	return of
}

// await waits until that many of them have run.
func (s *site) await(ctx context.Context, n int, within time.Duration, keep func(start) bool) ([]start, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		if of := s.seen(keep); len(of) >= n {
			return of, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d jobs ran within %v", len(s.seen(keep)), n, within)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func of(tenant string) func(start) bool { return func(s start) bool { return s.Tenant == tenant } }

// pending is how many jobs are in their queue, and not in a line.
func (s *site) pending(ctx context.Context) (int64, error) {
	return s.rdb.LLen(ctx, "asynq:{default}:pending").Result()
}

func many(tenant string, n int) []payload { return slices.Repeat([]payload{{Tenant: tenant}}, n) }
