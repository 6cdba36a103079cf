package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestCostsAreOfLimitsOnly: if jobs waited for something else than a limit, their cost at the
// limit does not slow them down when they go on.
func TestCostsAreOfLimitsOnly(t *testing.T) {
	t.Parallel()
	const limits = `
limits: { api: { rate: 1000000/1s } }
jobs: { "x:limited": { limits: [api], permits: 500, max_in_flight: %d, hold: 0 } }
`
	t.Run("mended", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, redistest.Start(t))
		var mended atomic.Bool
		for i := range 200 {
			s.enqueue("x:limited", fmt.Sprintf("x%03d", i))
		}
		s.serve(member{yaml: fmt.Sprintf(limits, 1000), handle: func(context.Context, *asynq.Task) error {
			if !mended.Load() {
				return asynqlimit.Blocked("no_credential", errors.New("none"))
			}
			return nil
		}})
		s.awaitWaiting("default", 200)
		mended.Store(true)
		s.awaitDone("default", 15*time.Second) // one by one it would take 40 s
	})
	t.Run("max_in_flight", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, redistest.Start(t))
		for i := range 200 {
			s.enqueue("x:limited", fmt.Sprintf("x%03d", i))
		}
		s.serve(member{yaml: fmt.Sprintf(limits, 10), asynq: asynq.Config{Concurrency: 20}, handle: func(context.Context, *asynq.Task) error {
			<-time.After(50 * time.Millisecond)
			return nil
		}})
		s.awaitDone("default", 12*time.Second) // 1 s if ten always ran; one by one 20 s
	})
}
