package asynqlimit

import (
	"testing"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// TestTurnsOfARareLimit: Redis has forgotten what tenants got, as it does within an hour in which
// a limit gave nothing. Their lines still say who is next.
func TestTurnsOfARareLimit(t *testing.T) {
	s := &sharing{
		k: &visit{permits: 1, capacity: 1}, limiter: "api", tags: line.Tags{V: -1, Finish: make([]float64, 2), Weights: make([]float64, 2)},
		waiting: line.Waiting{All: 2, First: []line.Tenant{
			{Name: "small", Start: 5, Since: 2000, Cost: 1, Tasks: 3},
			{Name: "hog", Start: 105, Since: 1000, Cost: 1, Tasks: 1000},
		}},
	}
	s.decide(&rules{})
	for _, k := range s.visits {
		if k.Line == line.OfTenant("api", "hog") && k.Permits > 0 || k.Line == line.OfTenant("api", "small") && k.Permits != 1 {
			t.Errorf("%+v, want the next job of small to be called", s.visits)
		}
	}
}
