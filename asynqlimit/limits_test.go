package asynqlimit_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

const tenPerSecond = `
limits: { api: { rate: 10/1s, guard: 100ms } } # the tests take the time when handlers begin
jobs: { "x:limited": { limits: [api] } }
`

// TestLimitHolds: the servers of a fleet keep a limit together, and jobs that wait come back in
// time, also on their last attempt.
func TestLimitHolds(t *testing.T) {
	onBoth(t, func(s *site) {
		for i := range 60 {
			s.enqueue("x:limited", fmt.Sprint(i), asynq.MaxRetry(i%2))
		}
		for i := range 2 {
			s.serve(member{name: fmt.Sprint(i), yaml: tenPerSecond, asynq: asynq.Config{Concurrency: 4}})
		}
		starts := s.awaitStarts("", 60, 20*time.Second)
		if most := busiest(starts, 950*time.Millisecond); most > 10 {
			s.t.Errorf("%d starts within 950ms, want at most 10", most)
		}
		took := starts[59].at.Sub(starts[0].at)
		s.t.Logf("60 at 10 a second took %v", took)
		if took > 7500*time.Millisecond {
			s.t.Errorf("60 starts at 10 a second took %v", took)
		}
		s.awaitDone("default", 10*time.Second)
		if len(s.starts) != 60 || len(s.failures) != 0 {
			s.t.Errorf("%d starts of 60, failures %v", len(s.starts), s.failures)
		}
	})
}

// TestStartsAreNotLaterThanTheirPermits: from time to time, Redis is slow to note that jobs do
// not wait any more. They still start with permits that are fresh.
func TestStartsAreNotLaterThanTheirPermits(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	var n atomic.Int64
	rdb := s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if cmd.Name() == "srem" && n.Add(1)%3 == 0 {
			<-time.After(150 * time.Millisecond)
		}
		return next(ctx, cmd)
	})
	for i := range 400 {
		s.enqueue("x:limited", fmt.Sprintf("x%03d", i))
	}
	s.serve(member{rdb: rdb, asynq: asynq.Config{Concurrency: 60}, yaml: `
limits: { api: { rate: 100/1s, guard: 50ms } }
jobs: { "x:limited": { limits: [api] } }
`})
	starts := s.awaitStarts("x", 400, 30*time.Second)
	if most := busiest(starts, 995*time.Millisecond); most > 100 {
		t.Errorf("%d starts within 995ms, want at most 100", most)
	}
}
