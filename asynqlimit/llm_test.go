package asynqlimit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/llmapi"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// llmYAML is the recipe in docs/llm-api.md, with an interval that tests can wait for.
const llmYAML = `
limits:
  llm-requests: { rate: 50/2s, guard: 200ms }
  llm-tokens: { rate: 9000/2s, guard: 200ms }
jobs:
  "x:llm": { limits: [llm-requests, llm-tokens], permits: { llm-tokens: payload.estimate } }
`

// askLLM is the recipe's handler: it calls the API, and settles what the call really cost.
func askLLM(url string) func(context.Context, *asynq.Task) error {
	return func(ctx context.Context, task *asynq.Task) error {
		resp, err := http.Post(url, "application/json", bytes.NewReader(task.Payload()))
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
		settled, err := http.Post(url+"/settled?id="+id, "", nil) // this tells the judge
		if err == nil {
			err = settled.Body.Close()
		}
		return err
	}
}

// TestRequestsAndTokens: the estimate for each job is wrong by a factor of 0.3 to 1.5. Three
// workers never send too many requests. They send too many tokens only to the extent that jobs
// cost more than they said and had not settled.
func TestRequestsAndTokens(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	s := newSite(t, addr)
	api := llmapi.New(50, 9000, 2*time.Second, 30*time.Millisecond)
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	const jobs = 150
	random, tokens := rand.New(rand.NewPCG(1, 2)), int64(0)
	for i := range jobs {
		req := llmapi.Request{ID: fmt.Sprintf("llm%03d", i), Estimate: 200 + random.Int64N(300)}
		if i < 60 {
			req.Estimate = 1 + random.Int64N(20) // requests are the tighter limit at first
		}
		req.Cost = max(int64(float64(req.Estimate)*(0.3+1.2*random.Float64())), 1)
		payload, err := json.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		tokens += req.Cost
		s.enqueuePayload("x:llm", req.ID, payload)
	}
	for i := range 3 {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { rdb.Close() })
		s.serve(member{name: fmt.Sprint(i), yaml: llmYAML, rdb: rdb, asynq: asynq.Config{Concurrency: 20}, handle: askLLM(server.URL)})
	}
	s.awaitDone("default", time.Minute)
	r := api.Report()
	t.Logf("%+v", r)
	if r.Requests != jobs || r.Tokens != tokens {
		t.Errorf("%d requests of %d tokens, want %d of %d", r.Requests, r.Tokens, jobs, tokens)
	}
	if r.BusiestRequests > 50 {
		t.Errorf("%d requests within 2s, want at most 50", r.BusiestRequests)
	}
	if r.Unexplained > 0 {
		t.Errorf("%d tokens within 2s, %d more than the limit and what was unsettled", r.BusiestTokens, r.Unexplained)
	}
}

// TestSettleLimit: to settle one limit changes that limit by the difference, and no other limit.
func TestSettleLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	yaml := `
limits: { requests: { rate: 50/1h }, tokens: { rate: 1000/1h }, account: { rate: 500/1h, key: payload.account } }
jobs: { "x:": { limits: [requests, tokens, account], permits: { tokens: payload.estimate, account: 7 } } }
`
	var plain, unknown error
	s.serve(member{yaml: yaml, handle: func(ctx context.Context, task *asynq.Task) error {
		var job struct{ Costs []int64 }
		if err := json.Unmarshal(task.Payload(), &job); err != nil {
			return err
		}
		for _, cost := range job.Costs {
			if err := asynqlimit.SettleLimit(ctx, "tokens", cost); err != nil {
				return err
			}
		}
		plain, unknown = asynqlimit.Settle(ctx, 100), asynqlimit.SettleLimit(ctx, "token", 3)
		return asynqlimit.SettleLimit(ctx, "account", 8)
	}})
	left := map[string]int64{"requests": 50, "tokens": 1000, "account:a": 500}
	for i, tt := range []struct {
		costs string
		net   int64
	}{{"[]", 100}, {"[30]", 30}, {"[150]", 150}, {"[0]", 0}, {"[120, 10, 60]", 60}, {"[100]", 100}} {
		id := fmt.Sprint("job", i)
		s.enqueuePayload("x:job", id, fmt.Appendf(nil, `{"account": "a", "estimate": 100, "costs": %s}`, tt.costs), asynq.MaxRetry(0))
		s.awaitDone("default", 10*time.Second)
		left["requests"] -= 1
		left["tokens"] -= tt.net
		left["account:a"] -= 8
		for name, want := range left {
			if got, err := s.limiter(name).AvailablePermits(t.Context()); err != nil || got != want {
				t.Errorf("after %s: %s has %d left, %v, want %d", tt.costs, name, got, err, want)
			}
		}
		if plain == nil || unknown == nil {
			t.Errorf("Settle: %v, SettleLimit of another limit: %v; want errors", plain, unknown)
		}
	}
}

// TestSettleTooLate: permits that a limit does not count any more are not given back. Otherwise
// permits of another job would be given back.
func TestSettleTooLate(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	second, settled := make(chan struct{}), make(chan error, 1)
	s.serve(member{yaml: `
limits: { tokens: { rate: 100/2s } }
jobs: { "x:": { limits: [tokens], permits: payload.estimate } }
`, handle: func(ctx context.Context, _ *asynq.Task) error {
		if id, _ := asynq.GetTaskID(ctx); id == "second" {
			close(second)
			return nil
		}
		<-second
		settled <- asynqlimit.SettleLimit(ctx, "tokens", 10)
		return nil
	}})
	s.enqueuePayload("x:job", "first", []byte(`{"estimate": 100}`))
	s.awaitStarts("first", 1, 10*time.Second)
	s.enqueuePayload("x:job", "second", []byte(`{"estimate": 100}`))
	if err := <-settled; err != nil {
		t.Error(err)
	}
	if got, err := s.limiter("tokens").AvailablePermits(t.Context()); err != nil || got != 0 {
		t.Errorf("%d permits are free, %v, while the second job has them all", got, err)
	}
}

// TestSettleAgain: the time of a job's Settle is over before Redis answers, and the job settles again, for one permit more. What
// it has not used goes back once.
func TestSettleAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	s.serve(member{yaml: `
limits: { tokens: { rate: 100/1h } }
jobs: { "x:": { limits: [tokens], permits: payload.estimate } }
`, handle: func(ctx context.Context, _ *asynq.Task) error {
		over, cancel := context.WithCancel(ctx)
		cancel()
		if err := asynqlimit.Settle(over, 6); err == nil {
			t.Error("Settle gets an answer after its time is over")
		}
		return asynqlimit.Settle(ctx, 7) // served after what goes back
	}})
	s.enqueuePayload("x:job", "job", []byte(`{"estimate": 10}`), asynq.MaxRetry(0))
	s.awaitDone("default", 10*time.Second)
	if got, err := s.limiter("tokens").AvailablePermits(t.Context()); err != nil || got != 93 {
		t.Errorf("%d permits are free, %v, want 93", got, err)
	}
}
