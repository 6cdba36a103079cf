package asynqlimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

const tenPerSecond = `
limits: { api: { rate: 10/1s } }
jobs: { "x:limited": { limits: [api] } }
`

// TestLimitHolds: servers of a fleet keep a limit together, and what waits comes
// back in time, on its last attempt too.
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
