package line

import (
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// TestRound: contenders ask no more often than the limit can serve them, if they are many. If each has many
// waiters, that is rarely; then they ask as often as Redis can answer with a third of its time.
func TestRound(t *testing.T) {
	second := script.Settings{Rate: 10_000, Interval: time.Second}
	year := script.Settings{Rate: 1, Interval: 365 * 24 * time.Hour}
	for name, tt := range map[string]struct {
		of         script.Settings
		contenders int64
		waiters    int64
		want       time.Duration
	}{
		"few":                        {second, herd - 1, 1000, 0},
		"each has its own":           {script.Settings{Rate: 25, Interval: time.Second, PerClient: true}, 200, 50, 0},
		"soon served":                {second, 1000, 1, 0},
		"soon answered":              {second, 1000, 20, 0},
		"one waiter each":            {second, 10_000, 1, time.Second},
		"many waiters each":          {second, 10_000, 20, 10_000 * perCall},
		"some with many waiters":     {second, 2000, 20, 2000 * perCall},
		"never served":               {year, 10_000, 1, roundTo},
		"never served, many waiters": {year, 10_000, 4096, roundTo},
	} {
		l := &Line{config: []script.Settings{tt.of}, contenders: tt.contenders}
		b := &batch{waiters: [][]*Waiter{make([]*Waiter, tt.waiters), nil}, request: script.Request{Runs: []script.Run{
			{Count: tt.waiters + 7, Ns: []int64{1}}, {Prefetch: true, Count: 1000, Ns: []int64{1}}, // some more than they ask for
		}}}
		if got := l.round(b); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
