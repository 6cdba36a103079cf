package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/bench/internal/redisserver"
	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/wire"
	"github.com/jobthrottle/jobthrottle/producer"
	"github.com/jobthrottle/jobthrottle/worker"
)

// row is a backlog that a fleet processes.
type row struct {
	name            string
	jobs, perSecond int // in all
	accounts        int // with a limit each, if there are several; their jobs are enqueued account by account
	perWorker       int // limit of each worker; 0: none
	workers, slots  int
	smooth          bool
	away            time.Duration // the round trip from a worker to Redis, beyond that of loopback
}

func rows() []row {
	return []row{
		{name: "6,000 at 1000/s", jobs: 6000, perSecond: 1000, workers: 2, slots: 100},
		{name: "30,000 at 1000/s", jobs: 30_000, perSecond: 1000, workers: 2, slots: 100},
		{name: "20,000 at 2000/s", jobs: 20_000, perSecond: 2000, workers: 2, slots: 100},
		{name: "400, 20/s for each worker and 60/s", jobs: 400, perSecond: 60, perWorker: 20, workers: 2, slots: 20},
		{name: "3,000, 5/s for each of 40 workers", jobs: 3000, perSecond: 10_000, perWorker: 5, workers: 40, slots: 5},
		{name: "6,000 at 1000/s, 40 workers x 2 slots", jobs: 6000, perSecond: 1000, workers: 40, slots: 2},
		{name: "300 accounts, 10 at 1/s each", jobs: 3000, perSecond: 300, accounts: 300, workers: 10, slots: 20},
		{name: "20 accounts, 1,000 at 50/s each", jobs: 20_000, perSecond: 1000, accounts: 20, workers: 2, slots: 100},
		far(30*time.Millisecond, false),
		far(30*time.Millisecond, true),
		far(120*time.Millisecond, false),
		far(120*time.Millisecond, true),
	}
}

// far is the row of workers whose Redis is that far away.
func far(away time.Duration, smooth bool) row {
	kind := "in bursts"
	if smooth {
		kind = "smooth"
	}
	return row{name: fmt.Sprintf("1,200 at 200/s %s, Redis %v away", kind, away), jobs: 1200, perSecond: 200, workers: 4, slots: 20, smooth: smooth, away: away}
}

const guard = 10 * time.Millisecond

// ideal is the shortest time that the limits allow, from the first start to the last.
func (r row) ideal() time.Duration {
	n := r.perSecond
	if r.perWorker > 0 {
		n = min(n, r.perWorker*r.workers)
	}
	if r.smooth {
		return time.Duration(r.jobs-1) * (time.Second + guard) / time.Duration(n)
	}
	return time.Duration((r.jobs+n-1)/n-1) * (time.Second + guard)
}

func (r row) config(addr string, free bool) *config.Config {
	rate := func(n int) string {
		if free {
			n = 1_000_000
		}
		return fmt.Sprintf("%d/1s", n)
	}
	cfg := config.Default()
	cfg.Redis.Addrs = []string{addr}
	api := config.Limit{Rate: rate(r.perSecond), Guard: config.Duration(guard), Smooth: r.smooth}
	if r.accounts > 0 {
		api.Rate, api.Key = rate(r.perSecond/r.accounts), "payload.account"
	}
	cfg.Limits = map[string]config.Limit{"api": api}
	names := []string{"api"}
	if r.perWorker > 0 {
		cfg.Limits["worker"] = config.Limit{Rate: rate(r.perWorker), Type: "per_client", Guard: config.Duration(guard)}
		names = append(names, "worker")
	}
	cfg.Jobs = map[string]config.Job{"bench:": {Limits: names}}
	cfg.Pools = []config.Pool{{Name: "bench", Concurrency: r.slots}}
	return cfg
}

// result is the time and the cost of a backlog.
type result struct {
	took       time.Duration
	busiest    float64 // most starts within an interval, as a ratio to the limit
	calls, cpu float64 // for each job, without the cost of an idle fleet; cpu in microseconds
	starts     []int   // in each tenth of a second
}

func (r row) measure(ctx context.Context, server *redisserver.Server, free bool) (result, error) {
	if err := server.Flush(ctx); err != nil {
		return result{}, err
	}
	if err := r.enqueue(ctx, server.Addr); err != nil {
		return result{}, err
	}
	addr := server.Addr
	if r.away > 0 {
		way, err := wire.New(addr)
		if err != nil {
			return result{}, err
		}
		defer way.Close()
		way.Set(wire.Trouble{Delay: r.away})
		addr = way.Addr
	}
	before, err := server.Usage(ctx)
	if err != nil {
		return result{}, err
	}
	f := &fleet{want: r.jobs, done: make(chan struct{})}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	errs := make([]error, r.workers)
	began := time.Now()
	for i := range r.workers {
		w, err := worker.New(r.config(addr, free), zap.NewNop())
		if err != nil {
			return result{}, err
		}
		w.HandleFunc("bench:", f.handle)
		wg.Go(func() { errs[i] = w.Run(running) })
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return result{}, ctx.Err()
	case <-time.After(5 * time.Minute):
		return result{}, errors.New("not done within 5 minutes")
	}
	worked := time.Since(began)
	after, err := server.Usage(ctx)
	if err != nil {
		return result{}, err
	}
	<-time.After(idle)
	rest, err := server.Usage(ctx)
	if err != nil {
		return result{}, err
	}
	stop()
	wg.Wait()
	used, resting := after.Sub(before), rest.Sub(after)
	net := float64(worked) / float64(idle)
	limit := r.perSecond
	if r.perWorker > 0 {
		limit = min(limit, r.perWorker*r.workers)
	}
	return result{
		took: f.spread(), starts: f.tenths(), busiest: float64(f.busiest(time.Second-guard)) / float64(limit),
		calls: (float64(used.ScriptCalls) - net*float64(resting.ScriptCalls)) / float64(r.jobs),
		cpu:   (float64(used.CPU) - net*float64(resting.CPU)) / float64(r.jobs) / float64(time.Microsecond),
	}, errors.Join(errs...)
}

// ignore is for callers that need no results.
var ignore = producer.StreamEvents{Done: func(producer.Result) {}, Outage: func(err error) {}}

func (r row) enqueue(ctx context.Context, addr string) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	s := producer.New(rdb).Stream(ctx, ignore)
	for i := range r.jobs {
		account := 0
		if r.accounts > 0 {
			account = i / (r.jobs / r.accounts)
		}
		if err := s.Add(i+1, producer.Job{Type: "bench:job", Payload: fmt.Appendf(nil, `{"account":%d}`, account)}); err != nil {
			return err
		}
	}
	return s.Close()
}

// fleet records when jobs started.
type fleet struct {
	mu     sync.Mutex
	starts []time.Time
	want   int
	done   chan struct{}
}

func (f *fleet) handle(context.Context, *asynq.Task) error {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.starts = append(f.starts, now); len(f.starts) == f.want {
		close(f.done)
	}
	return nil
}

func (f *fleet) spread() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.SortFunc(f.starts, time.Time.Compare)
	return f.starts[len(f.starts)-1].Sub(f.starts[0])
}

// tenths is how many jobs started in each tenth of a second after the first.
func (f *fleet) tenths() (n []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, at := range f.starts {
		tenth := int(at.Sub(f.starts[0]) / (time.Second / 10))
		for len(n) <= tenth {
			n = append(n, 0)
		}
		n[tenth]++
	}
	return n
}

// busiest is the largest number of starts within any window of that length.
func (f *fleet) busiest(window time.Duration) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	most, first := 0, 0
	for i := range f.starts {
		for f.starts[i].Sub(f.starts[first]) >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
