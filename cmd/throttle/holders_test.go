package main

import (
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
	for _, tt := range []struct{ name, config, words string }{
		{"order", "limits: { x: { rate: 1/1s } }\njobs: { x: { limits: [x] } }\n", "say which value with --value"},
		{"order", "limits: { order: { in_flight: 1, key: header.customer } }\njobs: { x: { limits: [order] } }\n", "it has a key: say which value"},
		{"order", "limits: { order: { in_flight: 1 }, 'order:acme': { in_flight: 2 } }\njobs: { x: { limits: [order, 'order:acme'] } }\n", "throttle list shows"},
	} {
		o := runCommand(t.Context(), "holders", tt.name, "--config", configFile(t, tt.config), "--redis", s.addr)
		if o.status != 1 || !strings.Contains(o.stderr, tt.words) {
			t.Errorf("%s, %s: %+v", tt.name, tt.config, o)
		}
	}
	file := configFile(t, "limits: { crm: { in_flight: 2 } }\njobs: { x: { limits: [crm] } }\n")
	if o := runCommand(t.Context(), "set", "crm", "10/1s", "--create", "--config", file, "--redis", s.addr); o.status != 2 || !strings.Contains(o.stderr, "throttle holders") {
		t.Errorf("%+v", o)
	}
}
