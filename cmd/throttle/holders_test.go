package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// TestHolders: who has the slots of a limit in flight, in words and as JSON, by its name
// or a value's; list and show have it, and what changes rates refuses it.
func TestHolders(t *testing.T) {
	s := newSite(t)
	for name, ids := range map[string][]string{"crm": {"default/a", "default/b"}, "order:acme": {"default/c"}} {
		f, err := s.client.InFlight(name, throttle.Slots{Limit: 2, Lease: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			l, err := f.Acquire(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Release(t.Context())
		}
	}
	for what, args := range map[string][]string{"holders": {"holders", "crm"}, "show": {"show", "crm"}} {
		text := s.done(args...)
		for _, want := range []string{"2 of 2 slots are taken", "default/a", "default/b", s.client.ID(), "lease", "20s"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q:\n%s", what, want, text)
			}
		}
	}
	got := decode[slots](t, s.done("holders", "order", "--value", "acme", "--json"))
	if got.Name != "order:acme" || got.InFlight != 2 || got.Taken != 1 || got.LeaseMS != 20000 || len(got.Holders) != 1 || got.Holders[0].ID != "default/c" ||
		got.Holders[0].Client != s.client.ID() || got.Holders[0].EndsMS <= 0 || got.Holders[0].EndsMS > 20000 {
		t.Errorf("%+v", got)
	}
	if list := s.done("list"); !strings.Contains(list, "IN FLIGHT") || !strings.Contains(list, "order:acme") || !strings.Contains(list, "crm") {
		t.Errorf("list:\n%s", list)
	}
	if o := runCommand(t.Context(), "holders", "none", "--redis", s.addr); o.status != 1 || !strings.Contains(o.stderr, `no limit in flight "none"`) {
		t.Errorf("%+v", o)
	}
	// A limit with a key has all its values, with a configuration that says so, and without one.
	keyed := []string{"--config", configFile(t, "limits: { order: { in_flight: 1, key: header.customer } }\njobs: { x: { limits: [order] } }\n"), "--redis", s.addr}
	for _, with := range [][]string{{"--redis", s.addr}, keyed} {
		for _, verb := range []string{"holders", "show"} {
			for _, value := range [][]string{nil, {"--value", "acme"}} {
				o := runCommand(t.Context(), slices.Concat([]string{verb, "order"}, value, with)...)
				if o.status != 0 || !strings.Contains(o.stdout, "order:acme") || !strings.Contains(o.stdout, "default/c") {
					t.Errorf("%s %v %v: %+v", verb, value, with, o)
				}
			}
		}
	}
	another, err := s.client.InFlight("order:zenith", throttle.Slots{Limit: 2})
	s.check(err)
	lease, err := another.Acquire(t.Context(), "default/d")
	s.check(err)
	defer lease.Release(t.Context())
	if text := s.done("holders", "order"); !strings.Contains(text, "order:acme") || !strings.Contains(text, "order:zenith") {
		t.Errorf("of two values:\n%s", text)
	}
	var holders []string
	for line := range strings.Lines(s.done("holders", "order", "--json")) {
		for _, h := range decode[slots](t, line).Holders {
			holders = append(holders, h.ID)
		}
	}
	if slices.Sort(holders); !slices.Equal(holders, []string{"default/c", "default/d"}) {
		t.Errorf("holders of two values: %q", holders)
	}
	for _, args := range [][]string{{"holders", "order", "--value", "nobody"}, {"show", "order", "--value", "nobody"}} {
		if o := runCommand(t.Context(), append(args, keyed...)...); o.status != 1 || !strings.Contains(o.stderr, `no value "nobody" of a limit in flight "order"`) {
			t.Errorf("%v: %+v", args, o)
		}
	}
	apart := configFile(t, "limits: { order: { in_flight: 1 }, 'order:acme': { in_flight: 2 } }\njobs: { x: { limits: [order, 'order:acme'] } }\n")
	if o := runCommand(t.Context(), "holders", "order", "--config", apart, "--redis", s.addr); o.status != 1 || !strings.Contains(o.stderr, "throttle list shows") {
		t.Errorf("a limit without a key: %+v", o)
	}
	// What is deleted is gone; one that makes no sense can be deleted, too.
	s.fails(2, []string{"delete", "crm"}, []string{"--yes", "stops the jobs"})
	if text := s.done("delete", "crm", "--yes"); !strings.Contains(text, "crm is deleted") {
		t.Errorf("delete: %s", text)
	}
	s.fails(1, []string{"holders", "crm"}, []string{`no limit in flight "crm"`})
	s.check(s.rdb.HSet(t.Context(), "crm", "in_flight", "many").Err())
	s.fails(1, []string{"holders", "crm"}, []string{"crm", "in_flight"})
	s.done("delete", "crm", "--yes", "--json")
	s.fails(1, []string{"delete", "order", "--yes"}, []string{`no limiter "order"`}) // nothing says that it has values
	if o := runCommand(t.Context(), append([]string{"delete", "order", "--value", "zenith", "--yes"}, keyed...)...); o.status != 0 {
		t.Errorf("delete a value: %+v", o)
	}
	if n := s.rdb.Exists(t.Context(), "order:zenith", "crm").Val(); n != 0 {
		t.Errorf("%d of the deleted are there", n)
	}
	if n := s.rdb.Exists(t.Context(), "order:acme").Val(); n != 1 {
		t.Error("another value was deleted, too")
	}
	// Nobody waits, and that is no error.
	if o := runCommand(t.Context(), append([]string{"jobs", "--limit", "order"}, keyed...)...); o.status != 0 || !strings.Contains(o.stderr, "no jobs wait (limit order)") {
		t.Errorf("jobs: %+v", o)
	}
	file := configFile(t, "limits: { crm: { in_flight: 2 } }\njobs: { x: { limits: [crm] } }\n")
	if o := runCommand(t.Context(), "set", "crm", "10/1s", "--create", "--config", file, "--redis", s.addr); o.status != 2 || !strings.Contains(o.stderr, "throttle holders") {
		t.Errorf("%+v", o)
	}
}
