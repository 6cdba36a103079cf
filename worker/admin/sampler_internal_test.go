package admin

import (
	"fmt"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// TestHistoryIsBounded: it keeps the last minutes, and nothing of limiters that were not among the overviews since.
func TestHistoryIsBounded(t *testing.T) {
	s := newSampler(nil)
	usage := operate.FleetUsage{Name: "api", Usage: throttle.Usage{Rate: throttle.Rate{Permits: 5, Interval: time.Second}}}
	began := time.Now()
	for i := range 1000 {
		usage.Used = int64(i)
		s.remember(jobview.Overview{At: began.Add(time.Duration(i) * time.Second), Limits: []jobview.LimitOverview{
			{Name: "api", Limiters: []jobview.LimiterOverview{{FleetUsage: usage}}},
			{Name: "absent"},
			{Name: "keyed", Key: "queue", Limiters: []jobview.LimiterOverview{{FleetUsage: operate.FleetUsage{Name: fmt.Sprintf("keyed:%d", i)}}}},
		}})
	}
	past := s.past()
	if points := past["api"]; len(past) != 1+301 || len(points) != 301 || past["keyed:698"] != nil || points[0].used != 699 || points[300].used != 999 {
		t.Errorf("history of %d limiters, %d points of api", len(past), len(points))
	}
}
