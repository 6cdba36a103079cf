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
	if o := s.run("list", "--max", "1"); strings.Contains(o.stdout, "crm") == strings.Contains(o.stdout, "order:acme") || !strings.Contains(o.stderr, "2 limits in flight, the first 1 of them shown") {
		t.Errorf("list --max 1: %+v", o)
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
	// Without a configuration, too, what changes a rate refuses a limit in flight and says what it is; and who asks for the holders of
	// a rate is not told to wait for them.
	for _, args := range [][]string{{"pause", "crm", "1h"}, {"set", "crm", "5/1s"}, {"set", "order", "5/1s"}, {"set", "order", "--smooth"}, {"pause", "order", "1h"},
		{"delete", "crm", "--yes"}, {"pin", "order", "--value", "acme"}} {
		does := map[string]string{"pause": "pause another limit of its jobs, or their queue", "set": "change in_flight in the configuration and restart the workers"}[args[0]]
		s.fails(2, args, []string{"of how many run at a time", "throttle holders", does})
	}
	s.fails(2, []string{"set", "crm", "5"}, []string{`"5": want PERMITS/INTERVAL`, "change in_flight in the configuration and restart the workers"})
	s.limiter("rated", perHour(1), 0)
	s.limiter("account:acme", perHour(1), 0)
	for _, args := range [][]string{{"holders", "rated"}, {"holders", "account"}, {"holders", "account", "--value", "acme"}} {
		s.fails(2, args, []string{"has a rate", "throttle show"})
	}
	apart := configFile(t, "limits: { order: { in_flight: 1 }, 'order:acme': { in_flight: 2 } }\njobs: { x: { limits: [order, 'order:acme'] } }\n")
	if o := runCommand(t.Context(), "holders", "order", "--config", apart, "--redis", s.addr); o.status != 1 || !strings.Contains(o.stderr, "throttle list shows") {
		t.Errorf("a limit without a key: %+v", o)
	}
	// A limit that has other limits' names below it is itself.
	s.limiter("crm:read", perHour(1), 0)
	if text := s.done("show", "crm"); !strings.Contains(text, "2 of 2 slots are taken") {
		t.Errorf("show crm beside crm:read:\n%s", text)
	}
	// What is left of a rate is in the way of a limit in flight.
	s.limiter("turned", perHour(1), 0)
	turned := []string{"--config", configFile(t, "limits: { turned: { in_flight: 1 } }\njobs: { x: { limits: [turned] } }\n"), "--redis", s.addr}
	if o := runCommand(t.Context(), append([]string{"delete", "turned", "--yes"}, turned...)...); o.status != 0 || s.rdb.Exists(t.Context(), "turned").Val() != 0 {
		t.Errorf("delete the rate of a limit in flight: %+v", o)
	}
	if o := runCommand(t.Context(), append([]string{"delete", "turned", "--yes"}, turned...)...); o.status != 2 || !strings.Contains(o.stderr, "throttle holders") {
		t.Errorf("delete a limit in flight: %+v", o)
	}
	// One that makes no sense says so.
	s.check(s.rdb.HSet(t.Context(), "broken:a", "in_flight", "many", "lease", "3000").Err())
	s.fails(1, []string{"holders", "broken"}, []string{"broken:a", "in_flight"})
	// Nobody waits, and that is no error.
	if o := runCommand(t.Context(), append([]string{"jobs", "--limit", "order"}, keyed...)...); o.status != 0 || !strings.Contains(o.stderr, "no jobs wait (limit order) in Redis at ") {
		t.Errorf("jobs: %+v", o)
	}
	file := configFile(t, "limits: { crm: { in_flight: 2 } }\njobs: { x: { limits: [crm] } }\n")
	if o := runCommand(t.Context(), "set", "crm", "10/1s", "--create", "--config", file, "--redis", s.addr); o.status != 2 || !strings.Contains(o.stderr, "throttle holders") {
		t.Errorf("%+v", o)
	}
}
