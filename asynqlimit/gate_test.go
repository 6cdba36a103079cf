package asynqlimit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// TestGateHoldsBack: no task is taken from a queue while all slots are full, except tasks that
// this process has called, if there is room for them.
func TestGateHoldsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(gateSize{slots: 2, room: 2, weights: map[string]int{"a": 1, "b": 1}})
		admit := func(queue string, want bool) *position {
			t.Helper()
			s, ok := g.admit(queue, time.Second)
			if ok != want {
				t.Fatalf("queue %s: admitted %v", queue, ok)
			}
			return s
		}
		first := admit("a", true)
		admit("a", true)
		began := time.Now()
		admit("a", false)
		if held := time.Since(began); held != time.Second {
			t.Errorf("held back for %v, want 1s", held)
		}
		g.expect("b", 1)
		began = time.Now()
		admit("a", false)
		if held := time.Since(began); held != 0 {
			t.Errorf("held back for %v while another queue may be asked", held)
		}
		called := admit("b", true)
		if called.slot || !called.waits {
			t.Errorf("%+v: want it in the room", called)
		}
		g.arrived("b", line.Called, time.Now())
		time.AfterFunc(300*time.Millisecond, first.leave)
		began = time.Now()
		admit("a", true)
		if held := time.Since(began); held != 300*time.Millisecond {
			t.Errorf("held back for %v, want until a slot was free", held)
		}
		g.close()
		admit("a", false)
	})
}

// TestGateOrder: a free slot goes to the tasks that wait in the room: the queue with more weight
// first if queues are strict, or else by weight and wait.
func TestGateOrder(t *testing.T) {
	for _, tt := range []struct {
		strict bool
		want   []string
	}{{true, []string{"heavy", "light"}}, {false, []string{"light", "heavy"}}} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(gateSize{slots: 1, room: 4, weights: map[string]int{"heavy": 2, "light": 1}, strict: tt.strict})
			running, _ := g.admit("light", 0)
			var got []string
			ask := func(queue string) {
				g.expect(queue, 1)
				s, ok := g.admit(queue, time.Second)
				if !ok {
					t.Fatal("not admitted")
				}
				go func() {
					if err := s.toSlot(t.Context()); err != nil {
						t.Error(err)
					}
					got = append(got, queue)
					s.leave()
				}()
				synctest.Wait()
			}
			ask("light")
			time.Sleep(3 * time.Second)
			ask("heavy")
			time.Sleep(time.Second)
			running.leave()
			synctest.Wait()
			if len(got) != 2 || got[0] != tt.want[0] || got[1] != tt.want[1] {
				t.Errorf("strict %v: %v, want %v", tt.strict, got, tt.want)
			}
		})
	}
}

// TestGateMore: one take asks for all tasks that this process has called, however few came with the take before, and for as many
// others as it wants; never for more than the queue may give, or than it has capacity for.
func TestGateMore(t *testing.T) {
	for name, tt := range map[string]struct{ called, want, most, got int }{
		"nothing is called":  {0, 3, 31, 3},
		"called":             {20, 0, 31, 19}, // and the one that was admitted
		"few are called":     {2, 3, 31, 3},
		"the queue has few":  {20, 0, 4, 4},
		"no capacity":        {100, 0, 99, 29},
		"no slots for these": {0, 31, 31, 9},
	} {
		g := newGate(gateSize{slots: 10, room: 20, weights: map[string]int{"a": 1}})
		g.expect("a", tt.called)
		if _, ok := g.admit("a", 0); !ok {
			t.Fatal("not admitted")
		}
		if got := len(g.more("a", tt.want, tt.most)); got != tt.got {
			t.Errorf("%s: %d positions, want %d", name, got, tt.got)
		}
	}
}

// TestGateRoom: one limiter gets half of the room for tasks that were not called. A task that waits
// in a slot because that is full swaps with a task that is due.
func TestGateRoom(t *testing.T) {
	g := newGate(gateSize{slots: 4, room: 16, notCalled: 4, weights: map[string]int{"a": 1}})
	api, other := []string{"api"}, []string{"other"}
	var positions []*position
	for range 4 {
		s, ok := g.admit("a", 0)
		if !ok {
			t.Fatal("not admitted")
		}
		positions = append(positions, s)
	}
	for i, want := range []bool{true, true, false} {
		if got := positions[i].toRoom(api, false, false); got != want {
			t.Errorf("%d: in the room %v, want %v", i, got, want)
		}
	}
	positions[2].stay(api, false, false)
	if !positions[3].toRoom(other, false, false) {
		t.Error("no room for the task of another limiter")
	}
	for range 3 { // the free slots
		if _, ok := g.admit("a", 0); !ok {
			t.Fatal("not admitted")
		}
	}
	if err := positions[0].toSlot(context.Background()); err != nil || !positions[0].slot {
		t.Errorf("%v: it has no slot although another only waits in one", err)
	}
	if positions[2].slot || !positions[2].waits {
		t.Error("it has not left its slot")
	}
	if used, waiting := g.used, g.waiting; used != 4 || waiting != 3 {
		t.Errorf("%d slots used, %d waiting, want 4 and 3", used, waiting)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := positions[1].toSlot(ended); err == nil {
		t.Error("a slot, though none is free")
	}
	for _, s := range positions {
		s.leave()
		s.leave()
	}
	if used, waiting := g.used, g.waiting; used != 3 || waiting != 0 {
		t.Errorf("%d slots used, %d waiting, want 3 and 0", used, waiting)
	}
}

// TestGateHasRoomForCalled: called tasks use the whole room, however many others wait there. Others
// wait only in their part of it.
func TestGateHasRoomForCalled(t *testing.T) {
	g := newGate(gateSize{slots: 2, room: 8, notCalled: 2, weights: map[string]int{"a": 1}})
	take := func(due bool) (in bool) {
		t.Helper()
		s, ok := g.admit("a", 0)
		if !ok {
			t.Fatal("not admitted")
		}
		defer func() {
			if !in {
				s.leave()
			}
		}()
		return s.toRoom([]string{"api"}, due, due)
	}
	if !take(false) || take(false) {
		t.Error("a limiter has not half of the room for tasks that were not called")
	}
	for lasts, want := range map[time.Duration]int{100 * time.Millisecond: 3, time.Millisecond: 9} {
		if g.lasts = lasts; g.capacity(lead) != want {
			t.Errorf("capacity for %d, want %d while handlers run for %v: only quick ones end while a burst lasts", g.capacity(lead), want, lasts)
		}
	}
	for i := range 7 {
		if !take(true) {
			t.Errorf("no room for the called task %d", i)
		}
	}
	if take(true) || take(false) {
		t.Error("more wait than there is room for")
	}
}

// TestGateHasCapacityForSlots: while slots are free there is capacity for as many tasks, whatever
// waits that does not want a slot soon.
func TestGateHasCapacityForSlots(t *testing.T) {
	g := newGate(gateSize{slots: 4, room: 16, notCalled: 4, weights: map[string]int{"a": 1}})
	for _, limiter := range []string{"a", "b", "c", "d"} {
		s, ok := g.admit("a", 0)
		if !ok || !s.toRoom([]string{limiter}, false, false) {
			t.Fatal("no room")
		}
		s.ran(time.Minute) // not soon over
	}
	for used := range 3 {
		if n := g.capacity(lead); n < 4-used {
			t.Errorf("capacity for %d, want %d: so many slots are free", n, 4-used)
		}
		g.admit("a", 0)
	}
}

// TestGateCallsNoMoreThanEnd: called tasks that wait want the slots that are free. No more are called
// for these slots, if handlers do not end while a burst lasts.
func TestGateCallsNoMoreThanEnd(t *testing.T) {
	g := newGate(gateSize{slots: 4, room: 16, notCalled: 4, weights: map[string]int{"a": 1}})
	g.lasts = time.Minute
	for i := range 8 {
		if n := g.capacity(lead); (n > 0) != (i < 4) {
			t.Errorf("capacity for %d while %d called tasks wait for 4 slots", n, i)
		}
		s, ok := g.admit("a", 0)
		if !ok || !s.toRoom([]string{"api"}, true, true) {
			t.Fatal("no room")
		}
	}
}

// TestGateLetsNoneCompeteWithTheirLike: tasks that were not called ask for slots. No more are taken from
// the queue than there are slots and their part of the room: a process that dies has no more in hand.
func TestGateLetsNoneCompeteWithTheirLike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(gateSize{slots: 1, room: 8, notCalled: 8, weights: map[string]int{"a": 1}})
		waits, _ := g.admit("a", 0)
		waits.came(false, time.Time{})
		waits.toRoom([]string{"api"}, false, true)
		g.admit("a", 0)
		ended, end := context.WithCancel(t.Context())
		go waits.toSlot(ended)
		synctest.Wait()
		if s, ok := g.admit("a", 0); ok {
			t.Errorf("%+v came", s)
		}
		end()
		synctest.Wait()
	})
}

// TestGateLetsOthersCompete: while called tasks in the room ask for slots, tasks of other queues come into the
// room and compete, but not more than slots are soon free, and none that would come after those.
func TestGateLetsOthersCompete(t *testing.T) {
	for _, tt := range []struct {
		name   string
		strict bool
		queue  string
		lasts  time.Duration
		want   int
	}{
		{"by weight", false, "light", 100 * time.Millisecond, 4},
		{"strict, more weight", true, "heavy", 100 * time.Millisecond, 4},
		{"strict, as much weight", true, "middle", 100 * time.Millisecond, 4},
		{"strict, less weight", true, "light", 100 * time.Millisecond, 0},
		{"slower handlers", false, "light", 500 * time.Millisecond, 2},
		{"long handlers", false, "light", time.Hour, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(gateSize{slots: 8, room: 32, weights: map[string]int{"heavy": 3, "middle": 2, "light": 1}, strict: tt.strict})
			g.lasts = tt.lasts
			for range 8 {
				g.admit("middle", 0)
			}
			g.expect("middle", 1)
			called, ok := g.admit("middle", 0)
			if !ok {
				t.Fatal("not admitted")
			}
			g.arrived("middle", line.Called, time.Now())
			called.came(true, time.Time{})
			ended, end := context.WithCancel(t.Context())
			go called.toSlot(ended)
			synctest.Wait()
			var came []*position
			var stop []context.CancelFunc
			for range 20 {
				if s, ok := g.admit(tt.queue, 0); ok {
					ctx, cancel := context.WithCancel(t.Context())
					came, stop = append(came, s), append(stop, cancel)
					go s.toSlot(ctx)
					synctest.Wait()
				}
			}
			if len(came) != tt.want {
				t.Errorf("%s: %d came, want %d", tt.name, len(came), tt.want)
			}
			if tt.want > 2 && g.capacity(lead) == 0 {
				t.Errorf("%s: those that came leave no capacity for called tasks", tt.name)
			}
			end()
			synctest.Wait()
			if len(came) > 0 { // there would be room for another one
				stop[0]()
				synctest.Wait()
				came[0].leave()
			}
			if _, ok := g.admit(tt.queue, 0); ok {
				t.Errorf("%s: one came although no called task asks for a slot", tt.name)
			}
			for i, s := range came {
				stop[i]()
				synctest.Wait()
				s.leave()
			}
			if g.compete != 0 || g.waiting != 1 || len(g.asking) != 0 {
				t.Errorf("%s: %d compete, %d wait and %d ask after they left", tt.name, g.compete, g.waiting, len(g.asking))
			}
		})
	}
}

// TestGateLearnsOfLongHandlers: the handlers of late were quick, and those that fill the slots now are
// not. No task waits behind them that another process could run.
func TestGateLearnsOfLongHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(gateSize{slots: 4, room: 16, weights: map[string]int{"a": 1, "b": 1}})
		g.lasts = time.Millisecond
		time.Sleep(time.Hour) // nothing ran
		for range 4 {
			g.admit("a", 0)
		}
		if g.capacity(lead) == 0 {
			t.Error("no capacity, though handlers are quick")
		}
		time.Sleep(time.Second)
		g.expect("a", 1)
		called, ok := g.admit("a", 0)
		if !ok {
			t.Fatal("not admitted")
		}
		g.arrived("a", line.Called, time.Now())
		called.came(true, time.Time{})
		ended, end := context.WithCancel(t.Context())
		go called.toSlot(ended)
		synctest.Wait()
		if _, ok := g.admit("b", 0); ok || g.capacity(lead) > 0 {
			t.Errorf("another task came: %v; capacity for %d", ok, g.capacity(lead))
		}
		end()
		synctest.Wait()
	})
}

// TestGateHasCapacityBesideIdlers: tasks that wait in slots, because the room is full, leave these to
// called tasks, however long they have waited.
func TestGateHasCapacityBesideIdlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(gateSize{slots: 2, room: 8, notCalled: 2, weights: map[string]int{"a": 1}})
		for range 3 {
			if s, ok := g.admit("a", 0); ok {
				s.stay([]string{"slow"}, false, false)
			}
		}
		time.Sleep(time.Minute)
		if used, waiting := g.used, g.waiting; used != 2 || waiting != 1 || g.capacity(lead) == 0 {
			t.Errorf("%d in slots, %d in the room, capacity for %d", used, waiting, g.capacity(lead))
		}
	})
}

// TestGateAdmitsCalledToFreeSlots: a called task takes a free slot although the room is full and another
// queue, which rests, is polled.
func TestGateAdmitsCalledToFreeSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(gateSize{slots: 2, room: 1, notCalled: 1, weights: map[string]int{"a": 1, "b": 1}, every: time.Second})
		if s, ok := g.admit("a", 0); !ok || !s.toRoom([]string{"slow"}, false, false) {
			t.Fatal("no room")
		}
		g.empty("a", time.Now())
		g.empty("b", time.Now())
		time.AfterFunc(10*time.Millisecond, func() { g.expect("b", 1) })
		began := time.Now()
		if _, ok := g.admit("a", time.Second); ok || time.Since(began) != 10*time.Millisecond {
			t.Errorf("queue a: admitted %v after %v", ok, time.Since(began))
		}
		if s, ok := g.admit("b", 0); !ok || !s.slot {
			t.Error("the called task has no slot")
		}
	})
}

// TestGateGuesses: another task comes in place of a called one, or the other way round. Those that were
// not called compete.
func TestGateGuesses(t *testing.T) {
	g := newGate(gateSize{slots: 1, room: 2, weights: map[string]int{"a": 1}})
	g.admit("a", 0)
	g.expect("a", 1)
	s, ok := g.admit("a", 0)
	if !ok || !s.due {
		t.Fatal("not admitted as a called one")
	}
	s.came(false, time.Time{})
	if !s.competing() || g.compete != 1 || g.due != 0 || g.waiting != 1 {
		t.Errorf("%+v: %d compete, %d due, %d wait", s, g.compete, g.due, g.waiting)
	}
	s.came(true, time.Time{})
	if s.competing() || g.compete != 0 || g.due != 1 || g.waiting != 1 {
		t.Errorf("%+v: %d compete, %d due, %d wait", s, g.compete, g.due, g.waiting)
	}
	s.leave()
	if g.compete != 0 || g.due != 0 || g.waiting != 0 {
		t.Errorf("%d compete, %d are due and %d wait after it left", g.compete, g.due, g.waiting)
	}
}

// TestGateNeverRests: asynq takes a negative interval for none.
func TestGateNeverRests(t *testing.T) {
	g := newGate(gateSize{slots: 1, room: 1, weights: map[string]int{"a": 1}, every: -1})
	g.empty("a", time.Now())
	if _, ok := g.admit("a", 0); !ok {
		t.Error("not admitted")
	}
}

// TestGateRestsForNone: while one queue may have tasks, no queue is left alone, however often another
// one was empty.
func TestGateRestsForNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(gateSize{slots: 2, room: 2, weights: map[string]int{"a": 1, "b": 1}, every: time.Second})
		for range 5 {
			g.empty("b", time.Now())
		}
		began := time.Now()
		if _, ok := g.admit("a", 10*time.Second); !ok || time.Since(began) != 0 {
			t.Errorf("a task may be taken from the other queue: %v, after %v", ok, time.Since(began))
		}
	})
}

// TestGateRests: when all queues were empty, no task is taken for a while, unless this process
// calls one. It does not wait for tasks that others have taken.
func TestGateRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(gateSize{slots: 2, room: 2, weights: map[string]int{"a": 1, "b": 1}, every: 100 * time.Millisecond})
		visit := func(queue string) (after time.Duration) {
			t.Helper()
			began := time.Now()
			s, ok := g.admit(queue, time.Second)
			if !ok {
				t.Fatalf("queue %s: not admitted", queue)
			}
			s.leave()
			return time.Since(began)
		}
		for range 5 {
			for _, queue := range []string{"a", "b"} {
				if after := visit(queue); queue == "b" && after != 0 {
					t.Errorf("the second queue was looked at after %v", after)
				}
				g.empty(queue, time.Now())
			}
			began := time.Now()
			if after := visit("a"); after < 50*time.Millisecond || after > 150*time.Millisecond {
				t.Errorf("looked again after %v, want 50ms to 150ms", after)
			}
			g.empty("a", began)
			g.empty("b", time.Now())
			time.AfterFunc(10*time.Millisecond, func() { g.expect("b", 3) })
			if s, ok := g.admit("a", time.Second); ok {
				s.leave()
			}
			if after := visit("b"); after != 0 || time.Since(began) > 200*time.Millisecond {
				t.Errorf("a called task was looked for after %v", time.Since(began))
			}
			time.Sleep(time.Millisecond)
			g.empty("b", time.Now())
			g.empty("a", time.Now())
			if after := visit("b"); after < 50*time.Millisecond {
				t.Errorf("looked after %v for tasks that others have taken", after)
			}
			g.arrived("b", "", time.Now())
		}
	})
}

// TestGateTellsWhoMayCompete: a task of a queue that is held back comes into the room as soon as a called
// task asks for a slot, also if none asked before and no slot is given back.
func TestGateTellsWhoMayCompete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(gateSize{slots: 1, room: 4, weights: map[string]int{"high": 3, "low": 1}, strict: true})
		g.lasts = lead
		g.admit("low", 0)
		g.expect("low", 1)
		called, _ := g.admit("low", 0)
		g.arrived("low", line.Called, time.Now())
		called.came(true, time.Time{})
		began := time.Now()
		admitted := make(chan bool)
		go func() {
			_, ok := g.admit("high", time.Second)
			admitted <- ok
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go called.toSlot(ctx)
		if ok := <-admitted; !ok || time.Since(began) > 0 {
			t.Errorf("admitted %v, after %v: want it at once", ok, time.Since(began))
		}
	})
}

// TestGateExchangesWhoComesToIdle: a task that idles in its slot leaves it to one in the room that wants a
// slot, whichever of them was first.
func TestGateExchangesWhoComesToIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(gateSize{slots: 1, room: 1, notCalled: 1})
		idler, _ := g.admit("default", 0)
		g.expect("default", 1)
		called, _ := g.admit("default", 0)
		called.came(true, time.Time{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		asked := make(chan error)
		go func() { asked <- called.toSlot(ctx) }()
		synctest.Wait()
		idler.asking(true)
		waits := false
		idler.stayIfAsking([]string{"api"}, false, func() { waits = true })
		if err := <-asked; err != nil || !waits || idler.slot {
			t.Errorf("%v; it waits: %v, in its slot: %v", err, waits, idler.slot)
		}
		called.leave()
		idler.leave()
		if used, waiting := g.used, g.waiting; used+waiting+len(g.of) > 0 {
			t.Errorf("%d slots in use, %d in the room, %v", used, waiting, g.of)
		}
	})
}

// TestGateExchangesWhoStays: so does one that knows by now that it has to wait. One that does not wait here
// leaves its slot in any case, and takes no room.
func TestGateExchangesWhoStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(gateSize{slots: 2, room: 1, notCalled: 1})
		stays, _ := g.admit("default", 0)
		parks, _ := g.admit("default", 0)
		g.expect("default", 1)
		called, _ := g.admit("default", 0)
		called.came(true, time.Time{})
		asked := make(chan error)
		go func() { asked <- called.toSlot(t.Context()) }()
		synctest.Wait()
		if parks.toRoom([]string{"api"}, false, false) || !parks.slot || called.slot {
			t.Errorf("the one that is to park: %+v", parks)
		}
		stays.stay([]string{"api"}, false, false)
		if err := <-asked; err != nil || stays.slot || !called.slot {
			t.Errorf("%v; %+v has kept its slot", err, stays)
		}
		for _, s := range []*position{stays, parks, called} {
			s.leave()
		}
		if used, waiting := g.used, g.waiting; used+waiting+len(g.of)+len(g.idlers) > 0 {
			t.Errorf("%d slots in use, %d in the room, %v", used, waiting, g.of)
		}
	})
}

// TestGateTellsOfRoom: the caller is told when there is capacity because a task has left the room, or waits
// there for longer.
func TestGateTellsOfRoom(t *testing.T) {
	for name, change := range map[string]func(*position){
		"left":   (*position).leave,
		"longer": func(s *position) { s.stay([]string{"api"}, true, false) },
	} {
		t.Run(name, func(t *testing.T) { tellsOfRoom(t, change) })
	}
}

func tellsOfRoom(t *testing.T, change func(*position)) {
	g := newGate(gateSize{slots: 2, room: 4, weights: map[string]int{"a": 1}})
	g.lasts = time.Minute
	admit := func() *position {
		s, ok := g.admit("a", 0)
		if !ok {
			t.Fatal("not admitted")
		}
		return s
	}
	in := admit()
	in.came(true, time.Time{})
	if !in.toRoom([]string{"api"}, true, true) {
		t.Fatal("no room")
	}
	admit()
	if n := g.capacity(lead); n != 0 {
		t.Fatalf("capacity for %d", n)
	}
	in.toRoom([]string{"api"}, true, true) // again, as who waits for its order does: nothing has changed
	if len(g.freed) > 0 {
		t.Error("the caller is told, and there is no capacity")
	}
	change(in)
	select {
	case <-g.freed:
	default:
		t.Errorf("capacity for %d, and nobody is told", g.capacity(lead))
	}
}

// TestLoadIsOfTasks: a slot that is held for a task of a queue that may be empty is not one of a job that runs.
func TestLoadIsOfTasks(t *testing.T) {
	g := newGate(gateSize{slots: 2, room: 2, notCalled: 2, weights: map[string]int{"a": 1}})
	load := func(running int) {
		t.Helper()
		if got, _ := g.load(); got != running {
			t.Errorf("%d run, want %d", got, running)
		}
	}
	admit := func() *position {
		t.Helper()
		s, ok := g.admit("a", 0)
		if !ok {
			t.Fatal("not admitted")
		}
		return s
	}
	runs, polls := admit(), admit()
	load(0)
	runs.came(false, time.Time{})
	load(1)
	polls.leave()
	load(1)
	if !runs.toRoom(nil, false, false) {
		t.Fatal("there is no room")
	}
	load(0)
	if err := runs.toSlot(t.Context()); err != nil {
		t.Fatal(err)
	}
	load(1)
	runs.leave()
	load(0)
}

// TestRoomIsForPermitsThatAreDueSoon: a task was called, and came to the room because there is no slot. Its permits are not due soon
// after all, and its limiter has half of the room already: there is no room for it. There is if it is due soon.
func TestRoomIsForPermitsThatAreDueSoon(t *testing.T) {
	g := newGate(gateSize{slots: 1, room: 8, notCalled: 4, weights: map[string]int{"a": 1}})
	api := []string{"api"}
	g.expect("a", 3)
	admit := func() *position {
		t.Helper()
		s, ok := g.admit("a", 0)
		if !ok {
			t.Fatal("not admitted")
		}
		s.came(true, time.Time{})
		return s
	}
	admit()
	for i, want := range []bool{true, true, false} {
		s := admit()
		if got := s.toRoom(api, false, false); got != want {
			t.Errorf("%d: in the room %v, want %v", i, got, want)
		}
	}
	if !admit().toRoom(api, true, true) {
		t.Error("no room for one whose permits are due soon")
	}
}
