package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/llmapi"
	"github.com/jobthrottle/jobthrottle/producer"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/worker"
)

const (
	workers = 4
	slots   = 50
)

// load is a backlog of jobs, and the limits for it.
type load struct {
	addr           string
	interval, call time.Duration
	estimate       int64 // on average
	minutes        float64
}

// measure runs the load. It returns what the API saw, and how much of the tighter limit was
// used, from the first call to the last.
func (l load) measure(ctx context.Context) (llmapi.Report, float64, error) {
	api := llmapi.New(requests, tokens, l.interval, l.call)
	server := httptest.NewServer(api)
	defer server.Close()
	jobs, err := l.enqueue(ctx)
	if err != nil {
		return llmapi.Report{}, 0, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var left atomic.Int64
	left.Store(jobs)
	done := make(chan struct{})
	calls := caller{url: server.URL, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers * slots}}}
	defer calls.http.CloseIdleConnections()
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for i := range workers {
		w, err := worker.New(l.config(), zap.NewNop())
		if err != nil {
			return llmapi.Report{}, 0, err
		}
		w.HandleFunc("llm:ask", func(ctx context.Context, task *asynq.Task) error {
			if err := calls.handle(ctx, task); err != nil {
				return err
			}
			if left.Add(-1) == 0 {
				close(done)
			}
			return nil
		})
		wg.Go(func() { errs[i] = w.Run(running) })
	}
	select {
	case <-done:
	case <-ctx.Done():
	case <-time.After(time.Duration(3 * l.minutes * float64(l.interval))):
		err = fmt.Errorf("%d of %d jobs were not done in three times the time", left.Load(), jobs)
	}
	stop()
	wg.Wait()
	return api.Report(), l.used(api), errors.Join(append(errs, err, ctx.Err())...)
}

// used is the share of the tighter limit that the calls used while jobs were waiting. It is
// measured over one interval less than the jobs are enough for. An interval is as long as
// permits count, with the guard.
func (l load) used(api *llmapi.API) float64 {
	guard := throttle.Rate{Permits: requests, Interval: l.interval}.DefaultGuard()
	intervals := int(l.minutes) - 1
	sent, cost := api.Within(time.Duration(intervals) * (l.interval + guard))
	return max(float64(sent)/requests, float64(cost)/tokens) / float64(intervals)
}

func (l load) config() *config.Config {
	cfg := config.Default()
	cfg.Redis.Addrs = []string{l.addr}
	rate := func(n int) config.Limit { return config.Limit{Rate: fmt.Sprintf("%d/%v", n, l.interval)} }
	cfg.Limits = map[string]config.Limit{"llm-requests": rate(requests), "llm-tokens": rate(tokens)}
	cfg.Jobs = map[string]config.Job{"llm:": {
		Limits: []string{"llm-requests", "llm-tokens"}, Permits: config.Permits{ByLimit: map[string]string{"llm-tokens": "payload.estimate"}},
	}}
	cfg.Pools = []config.Pool{{Name: "llm", Concurrency: slots}}
	return cfg
}

// ignore is for callers that need no results.
var ignore = producer.StreamEvents{Done: func(producer.Result) {}, Outage: func(error) {}}

// enqueue makes jobs for that many minutes, and returns how many.
func (l load) enqueue(ctx context.Context) (jobs int64, err error) {
	rdb := redis.NewClient(&redis.Options{Addr: l.addr})
	defer rdb.Close()
	stream := producer.New(rdb).Stream(ctx, ignore)
	random := rand.New(rand.NewPCG(1, 2))
	for cost := int64(0); float64(jobs) < l.minutes*requests && float64(cost) < l.minutes*tokens; jobs++ {
		req := llmapi.Request{ID: fmt.Sprintf("llm%05d", jobs), Estimate: l.estimate/2 + random.Int64N(l.estimate)}
		req.Cost = max(int64(float64(req.Estimate)*(0.3+1.2*random.Float64())), 1)
		cost += req.Cost
		payload, err := json.Marshal(req)
		if err != nil {
			return jobs, err
		}
		if err := stream.Add(int(jobs)+1, producer.Job{ID: req.ID, Type: "llm:ask", Payload: payload}); err != nil {
			return jobs, err
		}
	}
	return jobs, stream.Close()
}

// caller handles the jobs.
type caller struct {
	url  string
	http *http.Client
}

func (c caller) handle(ctx context.Context, task *asynq.Task) error {
	resp, err := c.http.Post(c.url, "application/json", bytes.NewReader(task.Payload()))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer llmapi.Answer
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if err := asynqlimit.SettleLimit(ctx, "llm-tokens", answer.Usage.TotalTokens); err != nil {
		return err
	}
	id, _ := asynq.GetTaskID(ctx)
	told, err := c.http.Post(c.url+"/settled?id="+id, "", nil) // tells the judge
	if err != nil {
		return err
	}
	return told.Body.Close()
}
