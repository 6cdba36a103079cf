package asynqlimit

import (
	"fmt"
	"testing"
	"time"
)

// TestWaits: a wait counts in all buckets whose bound it does not exceed.
func TestWaits(t *testing.T) {
	var c jobCounts
	last := WaitBounds[len(WaitBounds)-1]
	for _, d := range []time.Duration{0, WaitBounds[0], WaitBounds[0] + 1, last, last + 1} {
		c.waits.add(d)
	}
	got := c.stats("x").Waits
	if got.Count != 5 || got.Sum != 2*WaitBounds[0]+1+2*last+1 {
		t.Errorf("%d waits of %v", got.Count, got.Sum)
	}
	for i, n := range got.Buckets {
		want := int64(3)
		switch i {
		case 0:
			want = 2
		case len(got.Buckets) - 1:
			want = 4
		}
		if n != want {
			t.Errorf("%d waits of at most %v, want %d", n, WaitBounds[i], want)
		}
	}
}

// TestReportsAreFew: each cause is reported once a minute. Producers who make up types do not
// flood the log, and do not hide other problems for good.
func TestReportsAreFew(t *testing.T) {
	var r reports
	now := time.Now()
	reported := 0
	for i := range 30_000 {
		if r.add(now, fmt.Sprint("!no_handler:type", i%1001)) > 0 {
			reported++
		}
		now = now.Add(time.Millisecond)
	}
	if reported > maxCauses+1 {
		t.Errorf("%d reports in 30s, want one for each of %d causes", reported, maxCauses)
	}
	now = now.Add(3 * reportEvery)
	if r.add(now, "!no_handler:type1000") != 1 {
		t.Error("not reported by itself when the others are over")
	}
	if len(r.causes) != 1 {
		t.Errorf("%d causes are remembered, want 1", len(r.causes))
	}
}
