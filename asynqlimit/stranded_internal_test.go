package asynqlimit

import (
	"testing"
	"time"
)

// TestStranded: only attempts that are over, whose tasks only waited, whose leases are over, and that asynq has not ended.
func TestStranded(t *testing.T) {
	now := time.Now()
	ended, over, live := now.Add(-time.Minute), now.Add(-time.Second), now.Add(time.Minute)
	for name, tt := range map[string]struct {
		a    *attempt
		want bool
	}{
		"it waited":                     {&attempt{phase: waits, over: true, last: ended, leased: over}, true},
		"it parks":                      {&attempt{phase: waits, fate: parks, over: true, last: ended, leased: over}, true},
		"its handler had no permits":    {&attempt{phase: prepares, over: true, last: ended, leased: over}, true},
		"asynq parks it now":            {&attempt{phase: waits, fate: parks, settled: true, over: true, last: ended, leased: live}, false},
		"asynq could not park it":       {&attempt{phase: waits, fate: parks, settled: true, over: true, last: ended, leased: over}, true},
		"it has parked":                 {&attempt{phase: waits, fate: parks, settled: true, noted: true, over: true, last: ended, leased: over}, false},
		"it is not over":                {&attempt{phase: waits, last: ended, leased: over}, false},
		"it ended just now":             {&attempt{phase: waits, over: true, last: now, leased: over}, false},
		"its handler ran":               {&attempt{phase: runs, fate: asynqs, over: true, last: ended, leased: over}, false},
		"its handler was not to be run": {&attempt{phase: taken, over: true, last: ended, leased: over}, false},
	} {
		if got := tt.a.strandedNow(now); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
