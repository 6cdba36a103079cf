package asynqlimit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestJobsWithoutLimitsKeepTheirTime: a process expects called tasks that another process has
// taken. It still takes no job without limits for which it has no slot, because the job's time
// would pass in the room.
func TestJobsWithoutLimitsKeepTheirTime(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	handle := func(ctx context.Context, task *asynq.Task) error {
		if task.Type() == "y" {
			select {
			case <-time.After(2 * time.Second):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	for i := range 1000 {
		s.enqueue("x:limited", fmt.Sprintf("x%03d", i))
	}
	for i := range 2 {
		s.serve(member{name: fmt.Sprint(i), asynq: asynq.Config{Concurrency: 5}, handle: handle, yaml: `
limits: { api: { rate: 100/1s } }
jobs: { "x:limited": { limits: [api], hold: 100ms } }
`})
	}
	s.awaitStarts("x", 100, 10*time.Second)
	for i := range 40 {
		s.enqueue("y", fmt.Sprintf("y%03d", i), asynq.Timeout(3*time.Second), asynq.MaxRetry(0))
	}
	s.awaitDone("default", 60*time.Second)
	if len(s.failures) > 0 {
		t.Errorf("%d of 40 handlers had too little time left", len(s.failures))
	}
}
