package asynqlimit

import (
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// TestCounted: what a limit still counts of what a job took, and until when.
func TestCounted(t *testing.T) {
	at := func(s string) time.Time {
		parsed, err := time.Parse(time.TimeOnly, s)
		if err != nil {
			t.Fatal(err)
		}
		return parsed.AddDate(2026, 0, 0)
	}
	took := takes{{100, at("12:00:10")}, {20, at("12:00:50")}}
	minute := throttle.Rate{Permits: 1, Interval: time.Minute}
	calendar := minute
	calendar.Window = throttle.Calendar
	shifted := calendar
	shifted.Offset = 30 * time.Second
	for _, tt := range []struct {
		name  string
		rate  throttle.Rate
		now   string
		want  int64
		until string
	}{
		{"all", minute, "12:01:09", 120, "12:01:10"},
		{"the first has expired", minute, "12:01:10", 20, "12:01:50"},
		{"all have", minute, "12:01:50", 0, ""},
		{"within the window", calendar, "12:00:59", 120, "12:01:00"},
		{"the window is over", calendar, "12:01:00", 0, ""},
		{"in the next of shifted windows", shifted, "12:00:55", 20, "12:01:30"},
	} {
		n, until := took.counted(tt.rate, at(tt.now))
		if n != tt.want || tt.until != "" && !until.Equal(at(tt.until)) {
			t.Errorf("%s: %d until %v, want %d until %s", tt.name, n, until, tt.want, tt.until)
		}
	}
	if took.drop(110); took.sum() != 10 || len(took) != 1 {
		t.Errorf("left are %v, want 10 of the second", took)
	}
}
