package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// A wrong name creates nothing: a user who wants a new limit says so.
func TestSetCreatesOnlyWhenTold(t *testing.T) {
	s := newSite(t)
	s.limiter("stripe", perHour(100), 0)
	s.limiter("strope", perHour(100), 0)
	s.limiter("account:acme", perHour(5), 0)
	s.fails(cli.Usage, []string{"set", "strpe", "50/1h"}, []string{`"strpe"`, "--create", `"stripe"`, `"strope"`})
	s.fails(cli.Usage, []string{"set", "acount", "50/1h"}, []string{`"acount"`, "--create", `"account"`})
	s.fails(cli.Usage, []string{"set", "zzz", "50/1h", "--pin"}, []string{`"zzz"`, "--create"})
	s.fails(cli.Usage, []string{"set", "zzz", "--pin", "--create"}, []string{"--create", "RATE"})
	if n := s.rdb.Exists(t.Context(), "strpe", "zzz", "acount").Val(); n != 0 {
		t.Errorf("%d limits were created", n)
	}
	if got := decode[change](t, s.done("set", "strpe", "50/1h", "--create", "--json")); got.Before != nil || got.After.Rate != "50/1h" {
		t.Errorf("with --create: %+v", got)
	}
	// Who scripts it may create what is there.
	if got := decode[change](t, s.done("set", "strpe", "60/1h", "--create", "--json")); got.Before == nil || got.After.Rate != "60/1h" {
		t.Errorf("with --create again: %+v", got)
	}
}

// changes decodes a change a line.
func changes(t *testing.T, out string) []change {
	t.Helper()
	var all []change
	for line := range strings.Lines(out) {
		all = append(all, decode[change](t, line))
	}
	return all
}

// The own name of a limit with a key is all of its values, and --value is one.
func TestKeyedLimit(t *testing.T) {
	config := "limits: { account: { rate: 10/1h, key: payload.account }, account-new: { rate: 1/1h, key: payload.account } }\n" +
		"jobs: { x: { limits: [account, account-new] } }\n"
	for _, known := range []string{"by its values", "by the configuration"} {
		t.Run(known, func(t *testing.T) {
			s := newSite(t)
			for _, value := range []string{"acme", "eu%3A17", "zed"} {
				s.limiter("account:"+value, perHour(10), 3)
			}
			for _, other := range []string{"accounts", "account2:acme", "account:a:b", "other"} {
				s.limiter(other, perHour(10), 0)
			}
			var file []string
			if known == "by the configuration" {
				file = []string{"--config", configFile(t, config)}
			}
			with := func(args ...string) []string {
				if !slices.Contains(args, "--value") {
					args = append(args, "--all-values")
				}
				return append(args, file...)
			}

			got := changes(t, s.done(with("set", "account", "20/1h", "--pin", "--json")...))
			if len(got) != 3 {
				t.Fatalf("%d values changed, want 3: %+v", len(got), got)
			}
			for _, c := range got {
				if c.Before.Rate != "10/1h" || c.After.Rate != "20/1h" || c.After.Used != 3 || !c.After.Pinned {
					t.Errorf("changed %+v to %+v", c.Before, c.After)
				}
			}
			for _, other := range []string{"accounts", "account2:acme", "account:a:b", "other"} {
				if u := s.usage(other); u.Rate.Permits != 10 {
					t.Errorf("%q was changed, too", other)
				}
			}
			if n := s.rdb.Exists(t.Context(), "account").Val(); n != 0 {
				t.Error("a limit of the name itself was created")
			}
			// One value, written as the job has it.
			for value, name := range map[string]string{"acme": "account:acme", "eu:17": "account:eu%3A17"} {
				got := decode[change](t, s.done(with("set", "account", "30/1h", "--value", value, "--json")...))
				if got.After.Name != name || got.After.Permits != 30 {
					t.Errorf("--value %s: %+v", value, got.After)
				}
			}
			if u := s.usage("account:zed"); u.Rate.Permits != 20 {
				t.Error("--value changed another value")
			}
			s.fails(cli.Usage, with("set", "account", "30/1h", "--value", "acne"), []string{`"account:acne"`, "--create", `"account:acme"`})
			s.fails(cli.Usage, with("set", "account", "30/1h", "--value", "a{b"), []string{"a{b"})
			s.done(with("set", "account", "30/1h", "--value", "new", "--create")...)

			// All verbs mean the same by a name.
			for _, tt := range []struct {
				args []string
				of   func(*limiter) bool
				is   bool
			}{
				{[]string{"pause", "account", "15m"}, func(l *limiter) bool { return l.PausedMS > 0 }, true},
				{[]string{"resume", "account"}, func(l *limiter) bool { return l.PausedMS > 0 }, false},
				{[]string{"unpin", "account"}, func(l *limiter) bool { return l.Pinned }, false},
				{[]string{"pin", "account"}, func(l *limiter) bool { return l.Pinned }, true},
			} {
				got := changes(t, s.done(with(append(tt.args, "--json")...)...))
				if len(got) != 4 {
					t.Errorf("%v changed %d values, want 4", tt.args, len(got))
				}
				for _, c := range got {
					if tt.of(c.After) != tt.is {
						t.Errorf("%v: %+v", tt.args, c.After)
					}
				}
			}
			if out := s.done(with("show", "account")...); strings.Count(out, "account:") != 4 {
				t.Errorf("show account:\n%s", out)
			}
			if out := s.done(with("show", "account", "--value", "zed")...); !strings.HasPrefix(out, "account:zed\n") {
				t.Errorf("show --value:\n%s", out)
			}
			s.fails(cli.Usage, with("delete", "account"), []string{"forgets", "--yes"})
			s.fails(cli.Usage, with("set", "account", "--per-client"), []string{"forgets", "--yes"})
			s.done(with("delete", "account", "--value", "zed", "--yes")...)
			if got := changes(t, s.done(with("delete", "account", "--yes", "--json")...)); len(got) != 3 {
				t.Errorf("deleted %d values, want 3", len(got))
			}
			if n := s.rdb.Exists(t.Context(), "account:a:b", "accounts", "account2:acme").Val(); n != 3 {
				t.Errorf("%d of 3 other limits are left", n)
			}
		})
	}
	t.Run("nothing yet", func(t *testing.T) {
		s := newSite(t)
		s.limiter("account:x", perHour(1), 0)
		file := configFile(t, config)
		s.fails(cli.Usage, []string{"set", "account-new", "20/1h", "--create", "--config", file}, []string{`"account-new"`, "key", "--value"})
		s.fails(cli.Failed, []string{"pause", "account-new", "20s", "--config", file}, []string{`"account-new"`, "no value"})
	})
	t.Run("not keyed", func(t *testing.T) {
		s := newSite(t)
		s.limiter("api", perHour(1), 0)
		file := configFile(t, "limits: { api: { rate: 10/1h } }\njobs: { x: { limits: [api] } }\n")
		s.fails(cli.Usage, []string{"set", "api", "20/1h", "--value", "acme", "--create", "--config", file}, []string{`"api"`, "no key"})
	})
}

// What the configuration names is nobody's value, and values beyond some are counted, not printed.
func TestKeyedLimitAmongOthers(t *testing.T) {
	s := newSite(t)
	s.limiter("api:vip", perHour(10), 0)
	file := configFile(t, "limits: { 'api:vip': { rate: 10/1h } }\njobs: { x: { limits: ['api:vip'] } }\n")
	s.fails(cli.Usage, []string{"set", "api", "20/1h", "--config", file}, []string{`"api"`, "--create"})
	for i := range 50 {
		s.limiter(fmt.Sprintf("account:%02d", i), throttle.Rate{Permits: 1, Interval: time.Hour}, 0)
	}
	got := s.run("set", "account", "2/1h", "--all-values")
	if got.status != cli.Done || strings.Count(got.stdout, "before") != shownChanges || !strings.Contains(got.stderr, "50 values") {
		t.Errorf("%+v", got)
	}
	if u := s.usage("account:49"); u.Rate.Permits != 2 {
		t.Errorf("the last value has %v", u.Rate)
	}
}

// TestSaysWhatHoldsLater: each verb says what it did with the values that are in Redis, and how those are that appear later.
func TestSaysWhatHoldsLater(t *testing.T) {
	s := newSite(t)
	for _, value := range []string{"acme", "zed"} {
		s.limiter("account:"+value, perHour(10), 0)
	}
	for _, tt := range []struct {
		verb []string
		want string
	}{
		{[]string{"set", "account", "5/1h"}, "changed 2 values of limit \"account\"; values that appear later have the rate of the workers' configuration\n"},
		{[]string{"pause", "account", "1h"}, "paused 2 values of limit \"account\"; jobs of values that appear later still start: pause another limit of these jobs, one without a key, or their queue\n"},
		{[]string{"resume", "account"}, "resumed 2 values of limit \"account\"\n"},
		{[]string{"pin", "account"}, "pinned 2 values of limit \"account\"; values that appear later are not pinned\n"},
		{[]string{"unpin", "account"}, "unpinned 2 values of limit \"account\"\n"},
		{[]string{"delete", "account", "--yes"}, "deleted 2 values of limit \"account\"; the next job of each creates it again from the workers' configuration\n"},
	} {
		if got := s.run(append(tt.verb, "--all-values")...); got.status != cli.Done || got.stderr != tt.want {
			t.Errorf("%v: %+v, want %q", tt.verb, got, tt.want)
		}
	}
}

// --value is one value: an empty one, as an unset variable of a script is, or a second one is refused.
func TestValueIsOne(t *testing.T) {
	s := newSite(t)
	s.limiter("account:acme", perHour(10), 0)
	s.limiter("account:zed", perHour(10), 0)
	file := configFile(t, "limits: { account: { rate: 10/1h, key: payload.account } }\njobs: { x: { limits: [account] } }\n")
	for _, verb := range [][]string{
		{"set", "account", "5/1h"}, {"pause", "account", "1m"}, {"resume", "account"}, {"pin", "account"}, {"unpin", "account"}, {"delete", "account", "--yes"}, {"show", "account"},
	} {
		with := func(more ...string) []string { return append(append(slices.Clone(verb), "--config", file), more...) }
		s.fails(cli.Usage, with("--value", ""), []string{"--value", "empty"})
		s.fails(cli.Usage, with("--value="), []string{"--value", "empty"})
		s.fails(cli.Usage, with("--value", "acme", "--value", "zed"), []string{"--value", "twice"})
		s.fails(cli.Usage, with("--value", "acme", "--all-values"), []string{"--value", "--all-values"})
	}
	// Several values are asked for, or named.
	for _, verb := range [][]string{{"set", "account", "5/1h", "--config", file}, {"pause", "account", "1m", "--config", file}} {
		s.fails(cli.Usage, verb, []string{"2 values", "--value", "--all-values", "--yes"})
		for _, value := range []string{"acme", "zed"} {
			if u := s.usage("account:" + value); u.Rate.Permits != 10 || u.Paused > 0 {
				t.Errorf("%v changed %s: %+v", verb, value, u)
			}
		}
	}
	s.done("pause", "account", "1m", "--config", file, "--yes")
	s.done("set", "account", "5/1h", "--config", file, "--all-values")
	for _, value := range []string{"acme", "zed"} {
		if u := s.usage("account:" + value); u.Rate.Permits != 5 || u.Paused == 0 {
			t.Errorf("%s: %+v", value, u)
		}
	}
}

// Names with the same beginning are no values: unless it is known that a limit has a key, a
// wrong name changes no other limit.
func TestNamesThatBeginAlike(t *testing.T) {
	s := newSite(t)
	s.limiter("api:read", perHour(10), 0)
	s.limiter("api:write", perHour(20), 0)
	for _, verb := range [][]string{
		{"set", "api", "5/1h"}, {"set", "api", "--smooth"}, {"pause", "api", "1m"}, {"resume", "api"}, {"pin", "api"}, {"unpin", "api"}, {"delete", "api", "--yes"},
	} {
		s.fails(cli.Usage, verb, []string{`no limiter "api"`, "2 limiters", `"api:"`, "--all-values", "--config"})
	}
	s.done("set", "api", "5/1h", "--create")
	if u := s.usage("api"); u.Rate.Permits != 5 {
		t.Errorf("created %+v", u)
	}
	s.fails(cli.Usage, []string{"set", "api", "6/1h", "--create", "--all-values"}, []string{"--create", "--value"})
	for name, permits := range map[string]int64{"api:read": 10, "api:write": 20} {
		if u := s.usage(name); u.Rate.Permits != permits || u.Rate.Smooth || u.Pinned || u.Paused > 0 {
			t.Errorf("%s was changed: %+v", name, u)
		}
	}
	s.done("set", "api", "7/1h", "--all-values")
	for _, name := range []string{"api:read", "api:write"} {
		if u := s.usage(name); u.Rate.Permits != 7 {
			t.Errorf("%s is not changed: %+v", name, u)
		}
	}
}
