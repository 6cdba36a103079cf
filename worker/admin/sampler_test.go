package admin

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
	"github.com/jobthrottle/jobthrottle/worker"
)

// TestViewersShare: many viewers at a time cost Redis what one does.
func TestViewersShare(t *testing.T) {
	s := newSite(t, 1, twoLimits, "")
	s.awaitCreated("api")
	sampler := newSampler(s.first)
	var viewers sync.WaitGroup
	for range 50 {
		viewers.Go(func() {
			if _, err := sampler.Overview(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	viewers.Wait()
	if points := len(sampler.past()["api"]); points != 1 {
		t.Errorf("50 viewers at a time read Redis %d times, want once", points)
	}
	sampler.forget()
	if _, err := sampler.Overview(t.Context()); err != nil {
		t.Error(err)
	}
	if points := len(sampler.past()["api"]); points != 2 {
		t.Errorf("%d points after a change, want 2: an overview from before it is of no use", points)
	}
}

// TestHistoryIsBounded: it keeps the last minutes, and nothing of limiters that were not among the overviews since.
func TestHistoryIsBounded(t *testing.T) {
	s := newSampler(nil)
	usage := operate.FleetUsage{Name: "api", Usage: throttle.Usage{Rate: throttle.Rate{Permits: 5, Interval: time.Second}}}
	began := time.Now()
	for i := range 1000 {
		usage.Used = int64(i)
		s.latest = worker.Overview{At: began.Add(time.Duration(i) * time.Second), Limits: []worker.LimitOverview{
			{Name: "api", Limiters: []worker.LimiterOverview{{FleetUsage: usage}}},
			{Name: "absent"},
			{Name: "keyed", Key: "queue", Limiters: []worker.LimiterOverview{{FleetUsage: operate.FleetUsage{Name: fmt.Sprintf("keyed:%d", i)}}}},
		}}
		s.remember()
	}
	past := s.past()
	if points := past["api"]; len(past) != 1+301 || len(points) != 301 || past["keyed:698"] != nil || points[0].used != 699 || points[300].used != 999 {
		t.Errorf("history of %d limiters, %d points of api", len(past), len(points))
	}
}
