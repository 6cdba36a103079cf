package asynqlimit

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// TestGateGivesSlotsInTurn: whichever queue is polled when a slot is given back, the slot is for a task
// of the queue with more weight if the server is strict. Otherwise all have their part.
func TestGateGivesSlotsInTurn(t *testing.T) {
	for _, strict := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(gateSize{slots: 1, room: 1, weights: map[string]int{"heavy": 6, "light": 1}, strict: strict, every: time.Second})
			running, _ := g.admit("heavy", 0)
			got := map[string]int{}
			for range 700 {
				time.AfterFunc(700*time.Millisecond, running.leave)
				for admitted := false; !admitted; {
					for _, queue := range []string{"heavy", "light"} { // the second is polled when the slot comes
						if running, admitted = g.admit(queue, 500*time.Millisecond); admitted {
							break
						}
					}
				}
				got[running.queue]++
			}
			if light := got["light"]; strict && light > 0 || !strict && (light < 50 || light > 150) {
				t.Errorf("strict %v: %v", strict, got)
			}
			g.empty("heavy", time.Now())
			time.AfterFunc(5*time.Millisecond, running.leave)
			if running, ok := g.admit("light", time.Second); !ok || running.queue != "light" {
				t.Error("the slot is not for the only queue that may have tasks")
			}
		})
	}
}

// TestGateLeavesSlotsToLines: where handlers are so long that tasks are called only when a slot is free,
// that slot goes to whose turn it is: by their weights, to tasks of lines or to others.
func TestGateLeavesSlotsToLines(t *testing.T) {
	for name, tt := range map[string]struct {
		strict      bool
		line, other string
		tasks       bool // the queue of the line has others at hand, too
		from, to    int  // how many of 700 slots are to go to the queue of the line
	}{
		"strict, more weight":       {true, "heavy", "light", false, 700, 700},
		"strict, less weight":       {true, "light", "heavy", false, 0, 0},
		"by weight":                 {false, "light", "heavy", false, 50, 150},
		"by weight, tasks at hand":  {false, "heavy", "light", true, 565, 635},
		"light line, tasks at hand": {false, "light", "heavy", true, 50, 150},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(gateSize{slots: 1, weights: map[string]int{"heavy": 6, "light": 1}, strict: tt.strict})
				g.lasts = 5 * time.Second
				if !tt.tasks {
					g.rests[tt.line] = time.Now().Add(time.Hour)
				}
				running, _ := g.admit(tt.other, 0)
				running.came(false, time.Time{})
				got, ended := 0, make(chan struct{})
				var caller sync.WaitGroup
				defer caller.Wait()
				defer close(ended)
				caller.Go(func() {
					for {
						if g.capacity(lead) > 0 {
							time.Sleep(5 * time.Millisecond)
							g.expect(tt.line, 1)
							g.linesDue(nil, false)
						} else {
							g.linesDue([]string{tt.line}, false)
						}
						select {
						case <-g.freed:
						case <-time.After(idle):
						case <-ended:
							return
						}
					}
				})
				synctest.Wait()
				for range 700 {
					time.AfterFunc(5*time.Second, running.leave)
					for admitted := false; !admitted; {
						for _, queue := range []string{tt.other, tt.line} {
							if running, admitted = g.admit(queue, 500*time.Millisecond); admitted {
								break
							}
						}
					}
					called := g.expects(tt.line, time.Now())
					if running.queue == tt.line {
						got++
						g.arrived(tt.line, line.Called, time.Now())
						if !tt.tasks {
							g.rests[tt.line] = time.Now().Add(time.Hour)
						}
					} else {
						called = false
						g.onWay = map[string]*expected{} // other processes have taken what was called
					}
					running.came(called, time.Time{})
				}
				running.leave()
				if got < tt.from || got > tt.to {
					t.Errorf("%d of 700 slots went to the line, want %d to %d", got, tt.from, tt.to)
				}
			})
		})
	}
}

// TestGateEmptyQueueHasNoTurn: if the queue whose turn it is turns out to be empty, it is decided again for
// whom the slot is: tasks of lines are not passed over.
func TestGateEmptyQueueHasNoTurn(t *testing.T) {
	for _, slots := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(gateSize{slots: slots, room: 1, weights: map[string]int{"top": 9, "high": 6, "low": 1}, strict: true, every: time.Second})
			g.lasts = 5 * time.Second
			var running []*position
			for range slots {
				s, _ := g.admit("low", 0)
				s.came(false, time.Time{})
				running = append(running, s)
			}
			g.capacity(lead)
			g.linesDue([]string{"high"}, false)
			for _, s := range running {
				s.leave()
			}
			first, ok := g.admit("low", 0)
			if !ok || first.queue != "top" {
				t.Fatalf("admitted %v, to %+v", ok, first)
			}
			g.rests["top"], g.rests["high"] = time.Now().Add(time.Hour), time.Now().Add(time.Hour)
			first.leave()
			began := time.Now()
			if s, ok := g.admit("low", time.Minute); !ok || s.queue != "low" || time.Since(began) != leftFor {
				t.Errorf("%d slots: admitted %v, after %v: want %v for the line", slots, ok, time.Since(began), leftFor)
			}
		})
	}
}

// TestGateLeavesEachSlotBriefly: each slot is left to lines for its own time, and none is while another is free.
func TestGateLeavesEachSlotBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(gateSize{slots: 2, room: 1, weights: map[string]int{"heavy": 6, "light": 1}, strict: true})
		g.lasts = 5 * time.Second
		g.linesDue([]string{"heavy"}, false)
		g.rests["heavy"] = time.Now().Add(time.Hour)
		var running []*position
		for i := range 12 {
			began := time.Now()
			s, ok := g.admit("light", time.Minute)
			if !ok || time.Since(began) > 0 {
				t.Fatalf("%d: admitted %v, after %v", i, ok, time.Since(began))
			}
			s.came(false, time.Time{})
			if i < 10 {
				s.leave() // the other slot is free
			} else {
				running = append(running, s)
			}
		}
		began := time.Now()
		running[0].leave()
		time.Sleep(30 * time.Millisecond)
		running[1].leave()
		for _, want := range []time.Duration{leftFor, leftFor + 30*time.Millisecond} {
			if _, ok := g.admit("light", time.Minute); !ok || time.Since(began) != want {
				t.Errorf("admitted %v, after %v, want %v", ok, time.Since(began), want)
			}
		}
	})
}

// TestGateTurnStaysStrict: if a queue that comes first had no tasks when a slot became free, and may have
// some by now, the slot is for it.
func TestGateTurnStaysStrict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(gateSize{slots: 1, room: 1, weights: map[string]int{"high": 6, "low": 1}, strict: true})
		running, _ := g.admit("low", 0)
		running.came(false, time.Time{})
		g.rests["high"] = time.Now().Add(10 * time.Millisecond)
		running.leave()
		time.Sleep(11 * time.Millisecond)
		if s, ok := g.admit("high", 0); !ok || s.queue != "high" {
			t.Errorf("admitted %v, to %+v", ok, s)
		}
	})
}

// TestGateLeavesSlotsBriefly: if nobody is called to a slot that was left to tasks of lines, others get it:
// as soon as that is known, or soon. A position that no task came to is no slot that was given back.
func TestGateLeavesSlotsBriefly(t *testing.T) {
	for name, tt := range map[string]struct {
		none, empty bool
		after       time.Duration
	}{
		"nothing is known": {after: leftFor},
		"none was called":  {none: true, after: 10 * time.Millisecond},
		"no task came":     {empty: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(gateSize{slots: 1, room: 1, weights: map[string]int{"heavy": 6, "light": 1}, strict: true})
				g.lasts = 5 * time.Second
				running, _ := g.admit("light", 0)
				if !tt.empty {
					running.came(false, time.Time{})
				}
				g.capacity(lead)
				g.linesDue([]string{"heavy"}, false)
				g.rests["heavy"] = time.Now().Add(time.Hour)
				time.AfterFunc(time.Second, running.leave)
				if tt.none {
					time.AfterFunc(time.Second+10*time.Millisecond, func() { g.linesDue(nil, true) })
				}
				began := time.Now()
				if _, ok := g.admit("light", time.Minute); !ok || time.Since(began) != time.Second+tt.after {
					t.Errorf("admitted %v, after %v", ok, time.Since(began))
				}
			})
		})
	}
}

// TestUnvisited: slots are left to lines also while one line of their queue is visited in vain. Those that
// were visited just now may have tasks to call.
func TestUnvisited(t *testing.T) {
	one := []line.Claimed{{Name: "empty"}}
	for name, tt := range map[string]struct {
		due      line.Due
		capacity int
		want     bool
	}{
		"visited just now":               {line.Due{All: 2, Next: 40 * time.Millisecond}, 1, true},
		"visited just now, beside one":   {line.Due{All: 2, Next: 40 * time.Millisecond, Claimed: one}, 1, true},
		"visited a long time ahead":      {line.Due{All: 2, Next: time.Second, Claimed: one}, 1, false},
		"soon, but nobody can take them": {line.Due{All: 2, Next: 90 * time.Millisecond}, 0, true},
		"paused":                         {line.Due{All: 2, Paused: true}, 0, false},
		"no lines":                       {line.Due{}, 0, false},
	} {
		if got := unvisited(tt.due, tt.capacity); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestGateLeftsThatAreOver: a slot that was left to lines for long enough is for whoever comes, although a
// called task has taken another one since.
func TestGateLeftsThatAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(gateSize{slots: 2, room: 2, weights: map[string]int{"q": 1}})
		now := time.Now()
		g.lefts = []time.Time{now.Add(leftFor), now.Add(leftFor + 40*time.Millisecond)}
		time.Sleep(leftFor + 10*time.Millisecond)
		called := &position{g: g, queue: "q"}
		g.mu.Lock()
		g.occupy(called, true)
		g.mu.Unlock()
		if s, ok := g.admit("q", 0); !ok || !s.slot {
			t.Errorf("admitted %v, to %+v", ok, s)
		}
	})
}
