package asynqlimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestEachOfManyUsesItsPermits: each server of a fleet has permits of its own, and the jobs of all stand in one line. No server
// waits until it comes first there: all together start as many jobs as their limits allow, and each its share.
func TestEachOfManyUsesItsPermits(t *testing.T) {
	const servers, each, intervals = 24, 5, 8
	s := newSite(t, redistest.Start(t))
	for i := range servers * each * intervals {
		s.enqueue("x", fmt.Sprintf("task-%04d", i))
	}
	for i := range servers {
		s.serve(member{name: fmt.Sprint("server-", i), yaml: fmt.Sprintf("limits: {own: {rate: %d/1s, type: per_client}}\njobs: {x: {limits: [own]}}\n", each)})
	}
	began := time.Now()
	starts := s.awaitStarts("task-", servers*each*intervals, 3*intervals*time.Second)
	took := time.Since(began)
	if took > (intervals+4)*time.Second {
		t.Errorf("the jobs of %d intervals took %v", intervals, took)
	}
	of := map[string]int{}
	for _, start := range starts {
		of[start.server]++
	}
	for i := range servers {
		if n := of[fmt.Sprint("server-", i)]; n < each*(intervals-3) {
			t.Errorf("server %d started %d jobs of the %d that its limit allowed", i, n, each*intervals)
		}
	}
	t.Logf("%d jobs took %v", len(starts), took)
}
