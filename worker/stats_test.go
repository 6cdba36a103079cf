package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/config"
)

// TestStats: how attempts end, what they take and give back, and what stops a limit.
func TestStats(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { api: { rate: 1000/1s }, tokens: { rate: 1000/1s, key: queue } }
pools: [ { name: default, concurrency: 4 } ]
jobs:
  "x:plain":   { limits: [api] }
  "x:settles": { limits: [api, tokens], permits: 10 }
  "x:refused": { limits: [tokens] }
log: { level: error }
`)
	cfg, err := config.Parse("config.yaml", []byte(f.yaml))
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(cfg, f.log)
	if err != nil {
		t.Fatal(err)
	}
	var refused atomic.Bool
	w.HandleFunc("x", func(ctx context.Context, task *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		switch {
		case id == "fails":
			return errors.New("no")
		case id == "panics":
			panic("no")
		case id == "less":
			return Settle(ctx, 4)
		case id == "more":
			return Settle(ctx, 15)
		case id == "refused" && !refused.Swap(true):
			return RetryAfter(200 * time.Millisecond)
		}
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	for i := range 5 {
		f.enqueue("x:plain", fmt.Sprint(i))
	}
	for _, id := range []string{"fails", "panics"} {
		f.enqueue("x:plain", id, asynq.MaxRetry(0))
	}
	f.enqueue("x:settles", "less")
	f.enqueue("x:settles", "more")
	f.enqueue("x:refused", "refused", asynq.MaxRetry(5))
	f.enqueue("x:free", "free")
	f.awaitIdle("default", 2)

	got := w.Stats()
	want := Stats{
		Limits: []LimitStats{
			{Name: "api", Granted: 7 + 10 + 15, Returned: 6},
			{Name: "tokens", Granted: 10 + 15 + 2, Returned: 6, Parked: 1, Paused: 1},
		},
		Jobs: []JobStats{
			{Name: "x:plain", Done: 5, Failed: 2, Waits: Waits{Count: 7}, WholeWaits: Waits{Count: 7}, Handlers: Waits{Count: 7}},
			{Name: "x:refused", Done: 1, PutOff: 1, Waits: Waits{Count: 2}, WholeWaits: Waits{Count: 2}, Handlers: Waits{Count: 2}},
			{Name: "x:settles", Done: 2, Waits: Waits{Count: 2}, WholeWaits: Waits{Count: 2}, Handlers: Waits{Count: 2}},
			{Name: OtherJobs, Done: 1, WholeWaits: Waits{Count: 1}, Handlers: Waits{Count: 1}},
		},
	}
	for i, l := range got.Limits {
		if l != want.Limits[i] {
			t.Errorf("got  %+v\nwant %+v", l, want.Limits[i])
		}
	}
	for i, j := range got.Jobs {
		if j.Waits.Count > 0 && j.Waits.Sum <= 0 {
			t.Errorf("%s: %d waits took %v", j.Name, j.Waits.Count, j.Waits.Sum)
		}
		j.WholeWaits, j.Handlers = Waits{Count: j.WholeWaits.Count}, Waits{Count: j.Handlers.Count}
		j.Waits = Waits{Count: j.Waits.Count} // how long they were is the machine's business
		if j != want.Jobs[i] {
			t.Errorf("got  %+v\nwant %+v", j, want.Jobs[i])
		}
	}
	if len(got.Limits) != len(want.Limits) || len(got.Jobs) != len(want.Jobs) {
		t.Errorf("%d limits and %d jobs, want %d and %d", len(got.Limits), len(got.Jobs), len(want.Limits), len(want.Jobs))
	}
	if got.Throttle != w.Client().Stats() {
		t.Errorf("throttle: %+v, want %+v", got.Throttle, w.Client().Stats())
	}
}
