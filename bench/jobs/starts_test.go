package main

import (
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/internal/wanted"
)

// startsAt are starts at times in ms, by two workers in turn.
func startsAt(times ...int) []start {
	began := time.Now()
	var starts []start
	for i, ms := range times {
		starts = append(starts, start{began.Add(time.Duration(ms) * time.Millisecond), i % 2, "{}"})
	}
	return starts
}

// TestBusiest: starts that are a whole second apart are not within one.
func TestBusiest(t *testing.T) {
	for _, tt := range []struct {
		starts           []start
		together, worker int
	}{
		{nil, 0, 0},
		{startsAt(0, 0, 999, 999), 4, 2},
		{startsAt(0, 0, 1000, 1000), 2, 1},
		{startsAt(0, 500, 900, 1400, 1899), 3, 2},
		{startsAt(0, 1, 500, 1499, 1500), 3, 2},
	} {
		together := busiest(tt.starts, func(start) any { return nil })
		if worker := busiest(tt.starts, byWorker); together != tt.together || worker != tt.worker {
			t.Errorf("%v: %d together and %d by one worker, want %d and %d", tenths(tt.starts), together, worker, tt.together, tt.worker)
		}
	}
}

// TestRow: a figure that is not as wanted is named, and so is a limit that was exceeded.
func TestRow(t *testing.T) {
	r := row{name: "40", jobs: 40, perSecond: 20, perWorker: 10, workers: 2, wanted: bounds{ideal: 1.05, calls: 5, ratio: 2}}
	second := int((interval + guard) / time.Millisecond)
	starts := startsAt(make([]int, 20)...)
	starts = append(starts, starts...)
	for i := range starts[20:] {
		starts[20+i].at = starts[20+i].at.Add(time.Duration(second) * time.Millisecond)
	}
	var exact figures
	var missed wanted.Missed
	exact.add(r, result{starts: starts, calls: 5, cpu: 100}, result{calls: 1, cpu: 50})
	if line := exact.row(r, &missed); missed.Err() != nil || exact.above(r) != nil || !strings.Contains(line, "20 of 20 in all, 10 of 10 of a worker") {
		t.Errorf("%s: %v, %v; want no error", line, missed.Err(), exact.above(r))
	}
	starts[20].at = starts[0].at // of the first worker, a second too early
	var early figures
	early.add(r, result{starts: append(starts[20:21:21], append(starts[:20:20], starts[21:]...)...), calls: 6, cpu: 150}, result{calls: 1, cpu: 50})
	line, err := early.row(r, &missed), early.above(r)
	if err == nil || err.Error() != "40: 21 starts within a second in all, want at most 20\n40: 11 starts within a second of a worker, want at most 10" {
		t.Errorf("%s: %v, want both limits exceeded", line, err)
	}
	if !strings.HasSuffix(line, "ideal <= 1.05 reached, calls <= 5 missed, ratio <= 2 missed") || missed.Err() == nil {
		t.Errorf("%s: %v, want calls and ratio missed", line, missed.Err())
	}
}

// TestRows: the configuration of each row is valid, with the limit that binds and with the one that does not.
func TestRows(t *testing.T) {
	for _, r := range rows() {
		api := ""
		if r.http {
			api = "127.0.0.1:1"
		}
		for _, free := range []bool{false, true} {
			if err := r.config("127.0.0.1:1", api, free).Validate(); err != nil {
				t.Errorf("%s: %v", r.name, err)
			}
		}
	}
}
