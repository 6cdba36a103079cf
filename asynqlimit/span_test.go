package asynqlimit_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestSlowSpans: however long it takes to end the span of a wait, the job begins as soon as it has its permits: else
// the limit would be broken.
func TestSlowSpans(t *testing.T) {
	t.Parallel()
	const jobs, perSecond = 48, 8
	s := newSite(t, redistest.Start(t))
	s.serve(member{
		yaml:  "limits: { api: { rate: 8/1s, guard: 200ms } }\njobs: { \"x:limited\": { limits: [api] } }\n",
		asynq: asynq.Config{Concurrency: 10},
		opts: asynqlimit.Options{Trace: func(ctx context.Context, _ []string, _ int64) func(error) {
			id, _ := asynq.GetTaskID(ctx)
			return func(error) {
				if strings.HasSuffix(id, "5") {
					time.Sleep(500 * time.Millisecond)
				}
			}
		}},
	})
	for i := range jobs {
		s.enqueue("x:limited", fmt.Sprintf("job%02d", i))
	}
	s.awaitStarts("job", jobs, 20*time.Second)
	starts := s.seen("job")
	for i := perSecond; i < len(starts); i++ {
		if took := starts[i].at.Sub(starts[i-perSecond].at); took < time.Second {
			t.Errorf("%d starts within %v, want at least 1s", perSecond+1, took)
		}
	}
}

// TestSpanEndsWithinItsAttempt: the span of a wait is part of its attempt's, so it ends before that, however long it takes.
func TestSpanEndsWithinItsAttempt(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	var ended atomic.Bool
	inTime := make(chan bool, 1)
	s.serve(member{
		yaml: "limits: { api: { rate: 8/1s } }\njobs: { x: { limits: [api] } }\n",
		opts: asynqlimit.Options{
			Trace: func(context.Context, []string, int64) func(error) {
				return func(error) {
					time.Sleep(50 * time.Millisecond)
					ended.Store(true)
				}
			},
			Attempt: func(next asynq.Handler) asynq.Handler {
				return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
					err := next.ProcessTask(ctx, task)
					inTime <- ended.Load()
					return err
				})
			},
		},
	})
	s.enqueue("x", "x")
	select {
	case ok := <-inTime:
		if !ok {
			t.Error("the attempt ended before the span of its wait")
		}
	case <-time.After(10 * time.Second):
		t.Error("no attempt ended")
	}
}
