package asynqlimit

import (
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

func TestPace(t *testing.T) {
	now := time.Now()
	usage := func(permits int64, free, paused time.Duration) operate.FleetUsage {
		return operate.FleetUsage{Usage: throttle.Usage{Rate: throttle.Rate{Permits: permits, Interval: time.Second}, NextFree: free, Paused: paused}}
	}
	for name, tt := range map[string]struct {
		of      operate.FleetUsage
		permits int64
		after   time.Duration // since the limiter was read
		want    time.Duration
	}{
		"idle":                {usage(100, 0, 0), 50, 0, 500 * time.Millisecond},
		"reservations":        {usage(100, 2*time.Second, 0), 50, 0, 2500 * time.Millisecond},
		"reservations, later": {usage(100, 2*time.Second, 0), 50, time.Second, 1500 * time.Millisecond},
		"paused":              {usage(100, 0, time.Minute), 1, 0, time.Minute + 10*time.Millisecond},
		"pause over":          {usage(100, 0, time.Minute), 1, 2 * time.Minute, 10 * time.Millisecond},
		"not there":           {operate.FleetUsage{}, 1000, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := paceOf(tt.of, "", now).takes(tt.permits, now.Add(tt.after)); got != tt.want {
				t.Errorf("a line for %d permits takes %v, want %v", tt.permits, got, tt.want)
			}
		})
	}
}

// TestStandingOfPerClient: a process calls jobs for permits that it has for itself.
func TestStandingOfPerClient(t *testing.T) {
	usage := func(u throttle.Usage) operate.FleetUsage {
		u.Rate = throttle.Rate{Type: throttle.PerClient, Permits: 20, Interval: time.Second}
		return operate.FleetUsage{Usage: u}
	}
	for name, tt := range map[string]struct {
		of   operate.FleetUsage
		cost int64
		want int64 // tasks
	}{
		"some of its own": {usage(throttle.Usage{Available: 3, Soon: 7}), 1, 7},
		"none":            {usage(throttle.Usage{NextFree: time.Second}), 1, 0},
		"nothing used":    {usage(throttle.Usage{Available: 20, Soon: 20}), 1, 20},
		"paused":          {usage(throttle.Usage{Paused: time.Minute}), 1, 0},
		"whole tasks":     {usage(throttle.Usage{Available: 7, Soon: 7}), 3, 2},
	} {
		s := standingOf(tt.of, "me", tt.cost)
		if s.tasks(0) != tt.want || s.client != "me" {
			t.Errorf("%s: %+v, want permits for %d tasks", name, s, tt.want)
		}
	}
}
