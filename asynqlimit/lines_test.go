package asynqlimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestMoreLinesThanKnown: a queue has more lines than a process knows of at a
// time. The jobs of each are called when they are due.
func TestMoreLinesThanKnown(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	s.serve(member{yaml: `
limits: { account: { rate: 1/5s, key: payload.account } }
jobs: { "x:account": { limits: [account], hold: 100ms } }
`, asynq: asynq.Config{Concurrency: 100}})
	const accounts = 1500
	for _, round := range []string{"first", "second"} {
		for i := range accounts {
			s.enqueuePayload("x:account", fmt.Sprint(round, i), fmt.Appendf(nil, `{"account": "%d"}`, i))
		}
	}
	s.awaitStarts("first", accounts, 20*time.Second)
	starts := s.awaitStarts("second", accounts, 30*time.Second)
	t.Logf("the last started %v after the first", starts[accounts-1].at.Sub(s.seen("first")[0].at))
	s.awaitDone("default", 10*time.Second)
}
