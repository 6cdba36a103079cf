package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
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
	http            bool // the built-in job, to an API on loopback
	smooth          bool
	away            time.Duration // the round trip from a worker to Redis, beyond that of loopback
	wanted          bounds
}

// bounds are what a row's figures may be at most: the median of the time, as a ratio to the ideal
// time; the script calls a job; and Redis's CPU, as a ratio to that of the same jobs under a limit
// that never binds.
type bounds struct{ ideal, calls, ratio float64 }

// within bounds the time of a row. Its jobs cost what those of all such rows may cost.
func within(ideal float64) bounds { return bounds{ideal, 5, 2} }

func rows() []row {
	return []row{
		{name: "6,000 HTTP jobs at 1000/s", jobs: 6000, perSecond: 1000, workers: 2, slots: 100, http: true, wanted: within(1.03)},
		{name: "6,000 at 1000/s", jobs: 6000, perSecond: 1000, workers: 2, slots: 100, wanted: within(1.03)},
		{name: "30,000 at 1000/s", jobs: 30_000, perSecond: 1000, workers: 2, slots: 100, wanted: within(1.02)},
		{name: "20,000 at 2000/s", jobs: 20_000, perSecond: 2000, workers: 2, slots: 100, wanted: within(1.03)},
		{name: "400, 20/s for each worker and 60/s", jobs: 400, perSecond: 60, perWorker: 20, workers: 2, slots: 20, wanted: within(1.05)},
		{name: "3,000, 5/s for each of 40 workers", jobs: 3000, perSecond: 10_000, perWorker: 5, workers: 40, slots: 5},
		{name: "6,000 by 40 workers x 2 slots at 1000/s", jobs: 6000, perSecond: 1000, workers: 40, slots: 2},
		{name: "300 accounts, 10 at 1/s each", jobs: 3000, perSecond: 300, accounts: 300, workers: 10, slots: 20},
		{name: "20 accounts, 1,000 at 50/s each", jobs: 20_000, perSecond: 1000, accounts: 20, workers: 2, slots: 100, wanted: within(1.04)},
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

const (
	interval = time.Second
	guard    = 10 * time.Millisecond
	taskType = "bench:job"
)

// limit is a limit of a row, whose permits some starts share.
type limit struct {
	name    string
	permits int
	of      func(start) any // equal for starts that share the permits
}

func byWorker(s start) any { return s.worker }

func (r row) limits() []limit {
	api := limit{"in all", r.perSecond, func(start) any { return nil }}
	if r.accounts > 0 {
		api = limit{"of an account", r.perSecond / r.accounts, func(s start) any { return s.payload }}
	}
	if r.perWorker == 0 {
		return []limit{api}
	}
	return []limit{api, {"of a worker", r.perWorker, byWorker}}
}

// ideal is the shortest time that the limits allow, from the first start to the last.
func (r row) ideal() time.Duration {
	n := r.perSecond
	if r.perWorker > 0 {
		n = min(n, r.perWorker*r.workers)
	}
	if r.smooth {
		return time.Duration(r.jobs-1) * (interval + guard) / time.Duration(n)
	}
	return time.Duration((r.jobs+n-1)/n-1) * (interval + guard)
}

// config is the configuration of a worker. API is where HTTP jobs may go.
func (r row) config(addr, api string, free bool) *config.Config {
	rate := func(n int) string {
		if free {
			n = 1_000_000
		}
		return fmt.Sprintf("%d/1s", n)
	}
	cfg := config.Default()
	cfg.Redis.Addrs = []string{addr}
	all := config.Limit{Rate: rate(r.perSecond), Guard: config.Duration(guard), Smooth: r.smooth}
	if r.accounts > 0 {
		all.Rate, all.Key = rate(r.perSecond/r.accounts), "payload.account"
	}
	cfg.Limits = map[string]config.Limit{"api": all}
	names := []string{"api"}
	if r.perWorker > 0 {
		cfg.Limits["worker"] = config.Limit{Rate: rate(r.perWorker), Type: "per_client", Guard: config.Duration(guard)}
		names = append(names, "worker")
	}
	cfg.Jobs = map[string]config.Job{taskType: {Limits: names}, worker.HTTPTaskType: {Limits: names}}
	if r.http {
		cfg.HTTP.AllowHosts = []string{api}
	}
	cfg.Pools = []config.Pool{{Name: "bench", Concurrency: r.slots}}
	return cfg
}

// ignore is for callers that need no results.
var ignore = producer.StreamEvents{Done: func(producer.Result) {}, Outage: func(err error) {}}

// enqueue adds all jobs. HTTP jobs are requests to api.
func (r row) enqueue(ctx context.Context, addr, api string) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	s := producer.New(rdb).Stream(ctx, ignore)
	for i := range r.jobs {
		account := 0
		if r.accounts > 0 {
			account = i / (r.jobs / r.accounts)
		}
		job := producer.Job{Type: taskType, Payload: fmt.Appendf(nil, `{"account":%d}`, account)}
		if r.http {
			job = producer.Job{Type: worker.HTTPTaskType, Payload: fmt.Appendf(nil, `{"method":"GET","url":"http://%s/%d"}`, api, i)}
		}
		if err := s.Add(i+1, job); err != nil {
			return err
		}
	}
	return s.Close()
}
