package tenants

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// story is a Line and what happens to it.
type story struct {
	*testing.T
	line *Line
	now  line.Local
	of   map[string][]*Waiter // by tenant, in the order of arrival
}

func begin(t *testing.T) *story {
	return &story{T: t, line: NewLine("me"), now: line.Local(time.Hour), of: map[string][]*Waiter{}}
}

// come makes so many requests of a tenant arrive, each with a cost.
func (s *story) come(tenant string, n int, cost int64) {
	for range n {
		w := NewWaiter(tenant, cost, s.now, 0, false)
		s.of[tenant] = append(s.of[tenant], w)
		s.line.Arrive(w, s.now)
	}
}

// ask is the next call, which has to be due.
func (s *story) ask() *script.TenantCall {
	s.Helper()
	at, ok := s.line.Next()
	if !ok {
		s.Fatal("there is no call to make")
	}
	s.now = max(s.now, at)
	return s.line.Ask(s.now)
}

// answer answers a call: with room for so many, finish tags, and who waits elsewhere.
func (s *story) answer(t *script.TenantCall, room int64, finish map[string]float64, others ...script.WaitsAt) string {
	r := &script.TenantReply{Rate: 1000, Room: room, Pace: 10, Tags: map[string]script.Tag{}}
	me := script.WaitsAt{Client: "me", Out: t.Out, Held: t.Held, Rest: t.Rest}
	for _, w := range t.Told {
		me.Tenants = append(me.Tenants, script.WaitingTenant{Name: w.Tenant, Jobs: w.Jobs, Cost: w.Cost, Since: 5})
	}
	r.Clients = append(others, me)
	for _, c := range r.Clients {
		for _, w := range c.Tenants {
			r.Tags[w.Name] = script.Tag{Finish: finish[w.Name], Weight: 1}
		}
	}
	sent := s.now
	s.now = s.now.Add(time.Millisecond)
	d := s.line.Answer(s.now, sent, r, true)
	passed := map[string]int{}
	for _, w := range d.Pass {
		passed[w.tenant]++
	}
	var words []string
	for name, n := range passed {
		words = append(words, fmt.Sprint(name, n))
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func elsewhere(tenant string, jobs int64) script.WaitsAt {
	return script.WaitsAt{Client: "other", Rest: -1, Tenants: []script.WaitingTenant{{Name: tenant, Jobs: jobs, Cost: 1, Since: 1}}}
}

// TestDealt: who goes on depends on what there is room for and who else waits.
func TestDealt(t *testing.T) {
	for _, tt := range []struct {
		name   string
		come   map[string]int
		room   int64
		finish map[string]float64
		others []script.WaitsAt
		want   string
	}{
		{"there is no room", map[string]int{"a": 9}, 0, nil, nil, ""},
		{"one alone has all of it", map[string]int{"a": 9}, 5, nil, nil, "a5"},
		{"two share it", map[string]int{"a": 9, "b": 9}, 6, nil, nil, "a3 b3"},
		{"what one leaves the other has", map[string]int{"a": 9, "b": 1}, 6, nil, nil, "a5 b1"},
		{"one that has had more is behind", map[string]int{"a": 9, "b": 9}, 6, map[string]float64{"a": 4}, nil, "a1 b5"},
		{"one that waits elsewhere has its part", map[string]int{"a": 9}, 6, nil, []script.WaitsAt{elsewhere("b", 9)}, "a3"},
		{"in two processes a tenant takes turns", map[string]int{"a": 9}, 6, nil, []script.WaitsAt{elsewhere("a", 9)}, "a3"},
		{"and has what its other process leaves", map[string]int{"a": 9}, 6, nil, []script.WaitsAt{elsewhere("a", 1)}, "a5"},
		{"what others have dealt is not there", map[string]int{"a": 9}, 6, nil, []script.WaitsAt{{Client: "other", Out: 4, Rest: -1}}, "a2"},
		{"nobody goes before those who are not known", map[string]int{"a": 9}, 6, nil, []script.WaitsAt{{Client: "other", Rest: 2}}, "a3"},
	} {
		s := begin(t)
		for name, n := range tt.come {
			s.come(name, n, 1)
		}
		if got := s.answer(s.ask(), tt.room, tt.finish, tt.others...); got != tt.want {
			t.Errorf("%s: %q go on, want %q", tt.name, got, tt.want)
		}
	}
}

// TestCharged: a tenant is charged for what goes on, and not for what then gets nothing;
// afterwards there is nothing more to say.
func TestCharged(t *testing.T) {
	s := begin(t)
	s.come("a", 3, 2)
	if got := s.answer(s.ask(), 100, nil); got != "a3" {
		t.Fatalf("%q", got)
	}
	s.line.Decided(s.of["a"][0])
	s.line.Done(s.of["a"][0], true)
	s.line.Done(s.of["a"][1], false)
	call := s.ask()
	if fmt.Sprint(call.Paid) != "[{a 4}]" || call.Out != 2 || call.Held != 2 || len(call.Told) != 0 {
		t.Errorf("the next call says %+v", call)
	}
	s.answer(call, 100, nil)
	s.line.Done(s.of["a"][2], true)
	call = s.ask()
	if call.Out != 0 || call.Held != 0 || len(call.Paid) != 0 {
		t.Errorf("the last call says %+v", call)
	}
	s.answer(call, 100, nil)
	if at, ok := s.line.Next(); ok {
		t.Errorf("another call in %v though nobody waits", at.Sub(s.now))
	}
}

// TestRepeated: a call that failed is made again as the same call, with what it charges; what
// came since is in the next call.
func TestRepeated(t *testing.T) {
	s := begin(t)
	s.come("a", 2, 1)
	s.answer(s.ask(), 1, nil)
	first := s.ask()
	s.line.Failed(errors.New("no"), true)
	s.line.Return("b", 3)
	again := s.ask()
	if again.No != first.No || fmt.Sprint(again.Paid) != "[{a 1}]" {
		t.Errorf("again it is number %d with %v, at first %d with %v", again.No, again.Paid, first.No, first.Paid)
	}
	s.answer(again, 0, nil)
	if next := s.ask(); next.No == first.No || fmt.Sprint(next.Paid) != "[{b -3}]" {
		t.Errorf("then number %d with %v", next.No, next.Paid)
	}
}

// TestTold: a client tells of the tenants that are first, and from which start tag on the others
// are.
func TestTold(t *testing.T) {
	s := begin(t)
	for i := range 2 * maxTenants {
		s.come(fmt.Sprint("t", i), 1, 1)
	}
	call := s.ask()
	if len(call.Told) != maxTenants || call.Rest != 0 {
		t.Fatalf("%d are told of, the rest from %v on", len(call.Told), call.Rest)
	}
	s.answer(call, 1000, nil)
	if at, ok := s.line.Next(); !ok || at > s.now {
		t.Errorf("the next call is in %v, want it at once", at.Sub(s.now))
	}
	if call := s.ask(); len(call.Told) != maxTenants || call.Rest != -1 {
		t.Errorf("then %d are told of, the rest from %v on", len(call.Told), call.Rest)
	}
}

// TestVirtualTime: it does not pass those who wait, whatever a request costs.
func TestVirtualTime(t *testing.T) {
	s := begin(t)
	s.come("a", 1, 1)
	s.come("a", 1, 99)
	s.come("b", 9, 10)
	s.answer(s.ask(), 40, map[string]float64{"b": 5})
	if call := s.ask(); call.V > 5 {
		t.Errorf("the virtual time is %v, and b waits from 5 on", call.V)
	}
}
