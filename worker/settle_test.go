package worker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

func TestSettle(t *testing.T) {
	t.Parallel()
	const limits = "limits: { tokens: { rate: 100/1h }, requests: { rate: 50/1h, key: payload.account } }\n"
	tests := []struct {
		name   string
		limits string
		costs  []int64 // what the handler settles, in turn, of a job that said 10
		tokens int64   // left afterwards
	}{
		{"less", "[tokens, requests]", []int64{3}, 97},
		{"more", "[tokens, requests]", []int64{25}, 75},
		{"the same", "[tokens, requests]", []int64{10}, 90},
		{"nothing", "[tokens, requests]", []int64{0}, 100},
		{"as it goes", "[tokens, requests]", []int64{12, 30, 20}, 80},
		{"one limit", "[tokens]", []int64{42}, 58},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, limits+fmt.Sprintf(`
jobs: { "x:": { limits: %s, permits: 10 }, "other": { limits: [requests] } }
log: { level: warn }
`, tt.limits))
			if _, err := f.client.Enqueue(asynq.NewTask("x:llm", []byte(`{"account": 7}`))); err != nil {
				t.Fatal(err)
			}
			f.work(func(ctx context.Context, _ *asynq.Task) error {
				for _, cost := range tt.costs {
					if err := Settle(ctx, cost); err != nil {
						t.Error(err)
					}
				}
				return nil
			})
			f.await(1, 5*time.Second)
			f.awaitIdle("default", 0)
			want := map[string]int64{"tokens": tt.tokens}
			if tt.limits == "[tokens, requests]" {
				want["requests:7"] = tt.tokens - 50
			}
			for name, want := range want {
				if got, err := f.limiter(name).AvailablePermits(t.Context()); err != nil || got != want {
					t.Errorf("%s has %d permits left, %v, want %d", name, got, err, want)
				}
			}
		})
	}
}

// A job that costs more than its limit gives at once takes it in several
// intervals, and the worker can stop it.
func TestSettleMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { tokens: { rate: 10/400ms } }
jobs: { "x:": { limits: [tokens] } }
log: { level: warn }
`)
	f.enqueue("x:llm", "a")
	settled := make(chan error, 2)
	var took time.Duration
	stop := f.work(func(ctx context.Context, _ *asynq.Task) error {
		began := time.Now()
		settled <- Settle(ctx, 25)
		took = time.Since(began)
		settled <- Settle(ctx, 1_000_000)
		return nil
	})
	if err := <-settled; err != nil {
		t.Error(err)
	}
	f.awaitThat(5*time.Second, func() (bool, string) {
		return f.usage("tokens").Used > 0, "nothing used"
	})
	stop()
	if err := <-settled; err == nil {
		t.Error("a million tokens were settled")
	}
	if took < 800*time.Millisecond {
		t.Errorf("25 tokens at 10 every 400ms took %v", took)
	}
}

func TestSettleRefusals(t *testing.T) {
	if err := Settle(t.Context(), 1); err == nil {
		t.Error("no error outside of a handler")
	}
	if err := Settle(withoutLimits(t.Context()), -1); err == nil {
		t.Error("no error for a negative cost")
	}
	if err := Settle(withoutLimits(t.Context()), 5); err != nil {
		t.Errorf("without limits: %v", err)
	}
}
