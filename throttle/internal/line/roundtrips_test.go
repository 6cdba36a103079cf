package line

import (
	"testing"
	"time"
)

// TestSteadyAtStart: which round trips come from a long way to Redis, and not from a process
// that is kept from its processor.
func TestSteadyAtStart(t *testing.T) {
	const far = 8 * time.Millisecond
	for _, tt := range []struct {
		name  string
		trips []float64 // in milliseconds, in order
		want  bool
	}{
		{"two", []float64{10, 10}, false},
		{"three alike", []float64{12.9, 12.7, 11.3}, true},
		{"and a quicker one, that is not as far from the others as they may vary", []float64{12.965, 12.739, 11.312, 10.110}, true},
		{"and slow ones", []float64{12.9, 12.7, 11.3, 40, 60}, true},
		{"near", []float64{7, 7, 7, 7}, false},
		{"one was quick", []float64{12, 12, 12, 2}, false},
		{"a busy machine", []float64{9, 14, 30, 21}, false},
		{"a busy machine that was as slow three times", []float64{30, 32, 33, 9}, false},
		{"alike some time ago", []float64{30, 31, 32, 40, 60, 90, 130, 200, 300, 450, 700, 1000, 1500, 2200, 3300, 5000}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r RoundTrips
			for _, ms := range tt.trips {
				r.add(time.Duration(ms*float64(time.Millisecond)), 1)
			}
			if got := r.steadyAtStart(far); got != tt.want {
				t.Errorf("%v: %v, want %v", tt.trips, got, tt.want)
			}
		})
	}
}

// TestSteadyLater: a Redis that stood still and works off its backlog answers each call a
// little sooner than the one before. It is not far.
func TestSteadyLater(t *testing.T) {
	var r RoundTrips
	for _, ms := range []time.Duration{300, 290, 280, 220} {
		r.add(ms*time.Millisecond, 1)
	}
	if r.steady(100 * time.Millisecond) {
		t.Error("three calls took about as long, and the latest one did not: that is no way that is long")
	}
	for range 3 {
		r.add(220*time.Millisecond, 1)
	}
	if !r.steady(100 * time.Millisecond) {
		t.Error("four calls took as long as the quickest: the way there is long")
	}
}
