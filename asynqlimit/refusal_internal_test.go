package asynqlimit

import (
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// TestMovedOn: waits for other things do not count, whatever the clocks do.
func TestMovedOn(t *testing.T) {
	for _, tt := range []struct {
		name    string
		refused int64
		waited  time.Duration
		now     int64
		want    int64
	}{
		{"never refused", 0, time.Hour, 5000, 0},
		{"no wait", 1000, 0, 5000, 1000},
		{"a wait", 1000, time.Hour, 5000, 4600},
		{"half a second counts as one", 1000, 1500 * time.Millisecond, 5000, 1002},
		{"not after now", 1000, 2 * time.Hour, 5000, 5000},
		{"a clock that was set back", 1000, time.Hour, 500, 1000},
	} {
		if got := movedOn(tt.refused, tt.waited, tt.now); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	const second = 1_000_000
	for _, tt := range []struct {
		name  string
		w     line.Wait
		taken int64
		want  time.Duration
	}{
		{"called", line.Wait{State: line.Called, Soonest: 10_500}, 15 * second, 5 * time.Second},
		{"run by hand", line.Wait{State: line.Parked, Soonest: 10_500}, 15 * second, 5 * time.Second},
		{"by a version that does not tell", line.Wait{State: line.Called}, 15 * second, 0},
		{"it has run since", line.Wait{State: line.Arrived, Soonest: 10_500}, 15 * second, 0},
		{"a clock that was set back", line.Wait{State: line.Called, Soonest: 10_500}, 5 * second, 0},
	} {
		if got := tt.w.InLine(tt.taken); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
