package check

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/record"
)

const ms = time.Millisecond

// three is the limit of all records here.
var three = Limit{Permits: 3, Interval: 1000 * ms, Guard: 200 * ms}

// at are arrivals of jobs 0, 1, 2, ... at times in ms.
func at(times ...int) []record.Arrival {
	arrivals := make([]record.Arrival, len(times))
	for i, t := range times {
		arrivals[i] = record.Arrival{At: time.Duration(t) * ms, Worker: "w", Job: fmt.Sprint(i)}
	}
	return arrivals
}

// bursts are three arrivals at each of the times.
func bursts(times ...int) []record.Arrival {
	var all []int
	for _, t := range times {
		all = append(all, t, t, t)
	}
	return at(all...)
}

func TestBusiest(t *testing.T) {
	tests := []struct {
		name   string
		run    Run
		phase  Phase // of 10 s if it has no end
		window Window
	}{
		{"none", Run{}, Phase{}, Window{}},
		{"an interval apart", Run{Arrivals: bursts(0, 1000, 2000)}, Phase{}, Window{Arrivals: 3, Limit: 3}},
		{"1 ms too early", Run{Arrivals: bursts(0, 999)}, Phase{}, Window{Arrivals: 6, Limit: 3, Above: 3}},
		{"an interval that straddles two", Run{Arrivals: at(900, 900, 1000, 1100)}, Phase{}, Window{Arrivals: 4, Limit: 3, Above: 1}},
		{"too many before the phase", Run{Arrivals: at(0, 0, 0, 0, 5000)}, Phase{Begin: 2000 * ms}, Window{Arrivals: 1, Limit: 3}},
		{"a window that began before the phase", Run{Arrivals: at(900, 900, 900, 1100)}, Phase{Begin: 1000 * ms}, Window{Arrivals: 4, Limit: 3, Above: 1}},
		{"more was allowed", Run{
			Arrivals: at(0, 0, 0, 100, 100),
			Levels:   []Level{{Permits: 3, To: Never}, {Permits: 5, From: 50 * ms, To: 200 * ms}},
		}, Phase{}, Window{Arrivals: 5, Limit: 5}},
		{"more was allowed an interval ago", Run{
			Arrivals: at(1200, 1200, 1200, 1200),
			Levels:   []Level{{Permits: 3, To: Never}, {Permits: 5, From: 50 * ms, To: 200 * ms}},
		}, Phase{}, Window{Arrivals: 4, Limit: 3, Above: 1}},
		{"less was allowed", Run{
			Arrivals: at(1500, 1500, 1500),
			Levels:   []Level{{Permits: 3, To: 500 * ms}, {Permits: 2, From: 400 * ms, To: Never}},
		}, Phase{}, Window{Arrivals: 3, Limit: 2, Above: 1}},
	}
	for _, tt := range tests {
		tt.run.Limit = three
		tt.phase.Next = 10 * time.Second
		if got := tt.run.busiest(tt.phase); got != tt.window {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.window)
		}
	}
}

func TestJobs(t *testing.T) {
	arrivals := at(0, 0, 0, 10, 20) // of jobs 0 to 4
	arrivals[3].Job = "1"
	arrivals[4].Job = "stranger"
	r := Check(Run{
		Limit: three, Arrivals: arrivals, End: time.Second,
		Enqueued: []string{"0", "1", "2", "3", "4"},
		Waiting:  map[string]bool{"0": true, "3": true}, // 0 arrived, and asynq does not know
		Phases:   []Phase{{Begin: 5 * ms, End: 6 * ms, Next: 1000 * ms}},
	})
	if !slices.Equal(r.Lost, []string{"4"}) || !slices.Equal(r.Unasked, []string{"stranger"}) || r.Twice != 1 || r.Jobs != 5 {
		t.Errorf("of %d jobs %v lost, %v not enqueued, %d done twice; want 5, [4], [stranger], 1", r.Jobs, r.Lost, r.Unasked, r.Twice)
	}
	if r.Phases[0].Twice != 1 {
		t.Errorf("%d done twice in the phase, want 1", r.Phases[0].Twice)
	}
}

func TestIdle(t *testing.T) {
	tests := []struct {
		arrivals []record.Arrival
		want     time.Duration
	}{
		{bursts(0, 1200, 2400, 3600), 0},
		{at(0, 1200, 2400, 3600), 0}, // slow, and always something that counts
		{bursts(0, 3000), 1800*ms + 600*ms},
		{nil, 3600 * ms},
	}
	for i, tt := range tests {
		if got := (Run{Limit: three, Arrivals: tt.arrivals, End: 4800 * ms}).idle(); got != tt.want {
			t.Errorf("%d: idle for %v, want %v", i, got, tt.want)
		}
	}
}

// TestAfterAFault: bursts every 1.2 s, a fault from 3 s to 6 s.
func TestAfterAFault(t *testing.T) {
	tests := []struct {
		name          string
		bursts        []int
		next          time.Duration
		resumed, back time.Duration
		during, after float64
	}{
		{"nothing noticed", []int{0, 1200, 2400, 3600, 4800, 6000, 7200, 8400, 9600, 10800, 12000, 13200, 14400}, 14000 * ms, 0, 0, 0.8, 1},
		{"a pause", []int{0, 1200, 2400, 6500, 7700, 8900, 10100, 11300, 12500, 13700}, 14000 * ms, 500 * ms, 500 * ms, 0, 1},
		{"slow for a time", []int{0, 6500, 8500, 10500, 11700, 12900, 14100}, 14000 * ms, 500 * ms, 4500 * ms, 0, 1},
		{"slow for ever", []int{0, 6500, 8500, 10500, 12500, 14500}, 14000 * ms, 500 * ms, Never, 0, 0.6},
		{"never again", []int{0, 1200}, 14000 * ms, Never, Never, 0, 0},
		{"too short to tell", []int{0, 6500}, 9000 * ms, 500 * ms, Unknown, 0, Unknown},
	}
	for _, tt := range tests {
		r := Run{Limit: three, Arrivals: bursts(tt.bursts...), End: tt.next, Phases: []Phase{{Begin: 3000 * ms, End: 6000 * ms, Next: tt.next}}}
		f := Check(r).Phases[0]
		if f.Resumed != tt.resumed || f.Back != tt.back || math.Abs(f.During-tt.during) > 0.001 || math.Abs(f.After-tt.after) > 0.001 {
			t.Errorf("%s: resumed after %v, back after %v, %.3f used during it and %.3f after; want %v, %v, %.3f, %.3f",
				tt.name, f.Resumed, f.Back, f.During, f.After, tt.resumed, tt.back, tt.during, tt.after)
		}
	}
}

// TestCheckCrash: an arrival every 100 ms, and a death at 1000 ms.
func TestCheckCrash(t *testing.T) {
	smooth := Limit{Permits: 10, Interval: 900 * ms, Guard: 100 * ms}
	missing := func(gone ...int) []record.Arrival {
		var times []int
		for at := 50; at < 4000; at += 100 {
			if !slices.Contains(gone, at) {
				times = append(times, at)
			}
		}
		return at(times...)
	}
	tests := []struct {
		name string
		gone []int
		want Crash
	}{
		{"nobody missing", nil, Crash{}},
		{"every second", []int{1050, 1250, 1450}, Crash{Unused: 3}},
		{"one after the other", []int{1550, 1650, 1750}, Crash{Unused: 3}},
		{"before the death", []int{550}, Crash{}},
		{"long after", []int{1150, 2350}, Crash{Unused: 1, Later: 1}},
	}
	for _, tt := range tests {
		if got := CheckCrash(Run{Limit: smooth, Arrivals: missing(tt.gone...)}, 1000*ms, 1000*ms); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
