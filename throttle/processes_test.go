//go:build linux

package throttle_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// contended are the limits at which the fleet of eight processes is tested. Their guard allows for a busy machine, which
// stops a process for some milliseconds after it has its permits: no limiter knows of that.
var contended = []throttle.Rate{
	{Permits: 1000, Interval: time.Second, Guard: 50 * time.Millisecond},
	{Permits: 50, Interval: time.Second, Guard: 50 * time.Millisecond},
}

// logOutcome says how a fleet of processes did: here only the numbers tell.
func logOutcome(t *testing.T, f fleet, o outcome) {
	t.Helper()
	t.Logf("%s: %d permits, busiest window %d, %.1f %% used, %.3f calls/permit, %d stale, %d late; Jain %.4f over processes, %.4f over goroutines",
		f.rate, o.permits(), o.busiest(f.rate.Interval), 100*o.used(f.rate, max(f.rate.Guard, 10*time.Millisecond)), float64(o.calls)/float64(o.permits()),
		o.stale, o.late, o.jainClients(f), o.jainGoroutines(f))
}

func (o outcome) jainClients(f fleet) float64 {
	return o.jain(f.clients, func(u use) int { return u.client })
}

func (o outcome) jainGoroutines(f fleet) float64 {
	return o.jain(f.clients*f.goroutines, func(u use) int { return u.client*f.goroutines + u.goroutine })
}

// checkBusiest fails the test if any interval saw more than the limit.
func checkBusiest(t *testing.T, o outcome, r throttle.Rate) {
	t.Helper()
	if got := o.busiest(r.Interval); got > r.Permits {
		t.Errorf("%d permits were used within %v, the limit is %d", got, r.Interval, r.Permits)
	}
	if o.permits() == 0 {
		t.Error("nothing was used")
	}
}

// TestProcessesShareALimit: whatever the callers in eight processes see, no interval has more
// than the limit, and in the long run all get their share.
func TestProcessesShareALimit(t *testing.T) {
	for _, r := range contended {
		t.Run(strings.ReplaceAll(r.String(), "/", "per"), func(t *testing.T) {
			f := fleetOfProcesses{fleet: fleet{rate: r, clients: 8, goroutines: 64, length: 3 * time.Second}}
			if nightly() {
				// Long enough that it does not matter any more who came first: six rounds for
				// each.
				turn := time.Duration(f.clients*f.goroutines) * r.Interval / time.Duration(r.Permits)
				f.length = max(20*time.Second, 6*turn)
			}
			o, _ := f.run(t, redistest.Start(t))
			logOutcome(t, f.fleet, o)
			checkBusiest(t, o, r)
			if !nightly() {
				return
			}
			if got := o.jainClients(f.fleet); got < 0.99 {
				t.Errorf("Jain's index over processes is %.4f, want 0.99", got)
			}
			if got := o.jainGoroutines(f.fleet); got < 0.98 {
				t.Errorf("Jain's index over goroutines is %.4f, want 0.98", got)
			}
		})
	}
}

// TestStoppedProcess: a process that was stopped holds permits that are too old when it goes on.
// It must not use them.
func TestStoppedProcess(t *testing.T) {
	length, stop, between := 3*time.Second, 700*time.Millisecond, 300*time.Millisecond
	if nightly() {
		length, stop, between = 20*time.Second, 3*time.Second, time.Second
	}
	for _, r := range contended {
		t.Run(strings.ReplaceAll(r.String(), "/", "per"), func(t *testing.T) {
			f := fleetOfProcesses{fleet: fleet{rate: r, clients: 8, goroutines: 64, length: length}}
			f.during = func(ms []*member) {
				for left := length; left > between+stop; left -= between + stop {
					<-time.After(between)
					ms[0].signal(t, syscall.SIGSTOP)
					<-time.After(stop)
					ms[0].signal(t, syscall.SIGCONT)
				}
			}
			o, _ := f.run(t, redistest.Start(t))
			logOutcome(t, f.fleet, o)
			checkBusiest(t, o, r)
		})
	}
}

// TestPauseReachesEveryProcess: when one process pauses a limiter, within 100 ms no process
// starts anything any more, and none does before the pause is over.
func TestPauseReachesEveryProcess(t *testing.T) {
	pause := time.Second
	if nightly() {
		pause = 2 * time.Second
	}
	for name, r := range map[string]throttle.Rate{
		"evenly":    {Permits: 400, Interval: time.Second, Smooth: true, Guard: 50 * time.Millisecond}, // as for all fleets of processes: see contended
		"in bursts": {Permits: 20, Interval: 50 * time.Millisecond, Guard: 50 * time.Millisecond},
		"seldom":    {Permits: 20, Interval: time.Second, Smooth: true, Guard: 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			const after = 800 * time.Millisecond
			f := fleetOfProcesses{fleet: fleet{rate: r, clients: 4, goroutines: 16, length: after + pause + time.Second}, pauseAfter: after, pauseFor: pause}
			o, paused := f.run(t, redistest.Start(t))
			checkBusiest(t, o, r)
			var last, first time.Duration // the last start before the pause was over, and the first one after it
			for _, u := range o.uses {
				switch {
				case u.at < paused.Called+pause/2:
					last = u.at
				case first == 0:
					first = u.at
				}
			}
			t.Logf("last start %v after Pause returned (the call took %v), first %v after it was called",
				last-paused.Returned, paused.Returned-paused.Called, first-paused.Called)
			if late := last - paused.Returned; late > 100*time.Millisecond {
				t.Errorf("a start %v after Pause(%v), want at most 100ms", late, pause)
			}
			if wait := first - paused.Called; first == 0 || wait < pause {
				t.Errorf("the next start %v after Pause(%v)", wait, pause)
			}
			if first == 0 || last < paused.Called-200*time.Millisecond {
				t.Error("the fleet was not busy before and after the pause")
			}
		})
	}
}
