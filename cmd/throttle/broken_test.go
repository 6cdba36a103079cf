package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// A limiter that somebody has spoilt is named, and hides no other.
func TestSpoiltAmongOthers(t *testing.T) {
	for what, spoil := range map[string]func(s *site){
		"a field":   func(s *site) { s.check(s.rdb.HSet(s.Context(), "spoilt", "guard", "1e300").Err()) },
		"the rate":  func(s *site) { s.check(s.rdb.HSet(s.Context(), "spoilt", "rate", "a\nlot").Err()) },
		"its log":   func(s *site) { s.check(s.rdb.Set(s.Context(), "{spoilt}:permits", "x", 0).Err()) },
		"its value": func(s *site) { s.check(s.rdb.HSet(s.Context(), "{spoilt}:value", "x", 1).Err()) },
	} {
		t.Run(what, func(t *testing.T) {
			s := newSite(t)
			for _, name := range []string{"api", "spoilt", "web"} {
				s.limiter(name, perHour(100), 7)
			}
			s.check(s.rdb.Del(t.Context(), "{spoilt}:permits", "{spoilt}:value").Err())
			spoil(s)
			for _, verb := range []string{"list", "top"} {
				out := s.done(verb)
				for _, want := range []string{"api ", "web ", "spoilt "} {
					if !strings.Contains(out, want) {
						t.Errorf("%s does not show %q:\n%s", verb, want, out)
					}
				}
				if strings.Count(out, "broken: ") != 1 || strings.Count(out, "7") < 2 {
					t.Errorf("%s:\n%s", verb, out)
				}
				plainLines(t, out)
				broken := 0
				for line := range strings.Lines(s.done(verb, "--json")) {
					if l := decode[limiter](t, line); (l.Error != "") != (l.Name == "spoilt") || l.Error == "" && l.Used != 7 {
						t.Errorf("%s --json: %s", verb, line)
					} else if l.Error != "" {
						broken++
					}
				}
				if broken != 1 {
					t.Errorf("%s --json names %d broken limiters, want 1", verb, broken)
				}
			}
			if got := s.run("show", "api"); got.status != cli.Done {
				t.Errorf("show api: %+v", got)
			}
			if got := s.run("show", "spoilt"); got.status != cli.Failed || !strings.Contains(got.stderr, `"spoilt"`) || strings.Contains(got.stderr, "no limiter") {
				t.Errorf("show spoilt: %+v", got)
			}
			s.done("delete", "spoilt", "--yes")
			if out := s.done("list"); strings.Contains(out, "spoilt") {
				t.Errorf("after delete:\n%s", out)
			}
		})
	}
}

// TestSetFixesSpoilt: a rate fixes a limit whose keys hold something else, also the rate that it has. What can still be read stays.
func TestSetFixesSpoilt(t *testing.T) {
	s := newSite(t)
	kept := perHour(100)
	kept.KeepAlive = 48 * time.Hour
	for _, tt := range []struct {
		key, rate string
		used      int64
	}{
		{"{spoilt}:permits", "50/1h", 0},
		{"{spoilt}:permits", "100/1h", 0},
		{"{spoilt}:value", "50/1h", 7},
		{"{spoilt}:clients", "100/1h", 7},
	} {
		s.limiter("spoilt", kept, 7)
		s.check(s.rdb.Del(t.Context(), tt.key).Err())
		s.check(s.rdb.RPush(t.Context(), tt.key, "x").Err())
		s.done("set", "spoilt", tt.rate, "--yes")
		if u := s.usage("spoilt"); u.Rate.String() != tt.rate || u.Used != tt.used || u.Rate.KeepAlive != kept.KeepAlive {
			t.Errorf("%s: %+v, want %d used of %s", tt.key, u, tt.used, tt.rate)
		}
	}
	for _, value := range []string{"a", "b"} { // the same for the values of a limit with a key
		s.limiter("account:"+value, kept, 0)
	}
	s.check(s.rdb.Set(t.Context(), "{account:b}:permits", "x", 0).Err())
	s.done("set", "account", "20/1h", "--yes", "--all-values")
	if u := s.usage("account:b"); u.Rate.Permits != 20 || u.Rate.KeepAlive != kept.KeepAlive {
		t.Errorf("account:b: %+v", u)
	}
}

// TestSpoiltInFlight: a limit in flight that cannot be read is named, and hides no other limit. A
// hash of somebody else with a field in_flight is no limit. The first job of a worker that is
// started corrects what the configuration says.
func TestSpoiltInFlight(t *testing.T) {
	for what, spoil := range map[string]func(s *site){
		"its lease":  func(s *site) { s.check(s.rdb.HSet(s.Context(), "spoilt", "lease", "long").Err()) },
		"its number": func(s *site) { s.check(s.rdb.HSet(s.Context(), "spoilt", "in_flight", "-1").Err()) },
		"its slots":  func(s *site) { s.check(s.rdb.Set(s.Context(), "{spoilt}:slots", "x", 0).Err()) },
	} {
		t.Run(what, func(t *testing.T) {
			s := newSite(t)
			s.limiter("api", perHour(100), 7)
			for _, name := range []string{"crm", "spoilt"} {
				f, err := s.client.InFlight(name, throttle.Slots{Limit: 2})
				s.check(err)
				l, err := f.Acquire(t.Context(), "job")
				s.check(err)
				s.check(l.Release(t.Context()))
			}
			spoil(s)
			s.check(s.rdb.HSet(t.Context(), "app:stats", "in_flight", 3).Err())
			for _, verb := range []string{"list", "top"} {
				out := s.done(verb)
				for _, want := range []string{"api ", "crm ", "spoilt "} {
					if !strings.Contains(out, want) {
						t.Errorf("%s does not show %q:\n%s", verb, want, out)
					}
				}
				if strings.Count(out, "broken: ") != 1 || strings.Contains(out, "app:stats") || strings.Contains(out, "throttle") {
					t.Errorf("%s:\n%s", verb, out)
				}
				broken := 0
				for line := range strings.Lines(s.done(verb, "--json")) {
					if !strings.Contains(line, `"in_flight"`) {
						continue
					}
					if l := decode[slots](t, line); l.Error != "" {
						broken++
						if l.Name != "spoilt" || l.InFlight != 0 {
							t.Errorf("%s --json: %s", verb, line)
						}
					}
				}
				if broken != 1 {
					t.Errorf("%s --json names %d broken limits, want 1", verb, broken)
				}
			}
			if what == "its slots" {
				expectFailure(t, s.run("holders", "spoilt"), cli.Failed, []string{`"spoilt"`})
				return
			}
			expectFailure(t, s.run("holders", "spoilt"), cli.Failed, []string{`"spoilt"`, "restart a worker"})
			s.check(s.rdb.ScriptFlush(t.Context()).Err())
			if out := s.done("list"); !strings.Contains(out, "restart a worker") {
				t.Errorf("list says:\n%s", out)
			}
			started, err := throttle.New(s.rdb, throttle.Options{})
			s.check(err)
			defer started.Close()
			f, err := started.InFlight("spoilt", throttle.Slots{Limit: 2})
			s.check(err)
			_, err = f.Acquire(t.Context(), "first")
			s.check(err)
			if out := s.done("list"); strings.Contains(out, "broken") {
				t.Errorf("after the first job of a worker that was started:\n%s", out)
			}
		})
	}
}

// Beyond the number whose usage is read, a list names the broken ones, too.
func TestSpoiltAmongMany(t *testing.T) {
	s := newSite(t)
	s.limiter("spoilt", perHour(100), 0)
	s.check(s.rdb.HSet(t.Context(), "spoilt", "window", "7").Err())
	for i := range usageUpTo {
		s.check(s.rdb.HSet(t.Context(), fmt.Sprintf("l%d", i), "rate", 1, "interval", 1000, "type", 0).Err())
	}
	if out := s.done("list"); strings.Count(out, "\n") != usageUpTo+2 || strings.Count(out, "broken: ") != 1 {
		t.Errorf("%d lines, %d broken", strings.Count(out, "\n"), strings.Count(out, "broken: "))
	}
}

// Among the values of a limit with a key a broken one stops nobody, and a rate mends it.
func TestSpoiltValue(t *testing.T) {
	s := newSite(t)
	for _, value := range []string{"a", "b", "c"} {
		s.limiter("account:"+value, perHour(10), 0)
	}
	s.check(s.rdb.HSet(t.Context(), "account:b", "offset", "1e300").Err())
	got := s.run("pause", "account", "1h", "--all-values")
	if got.status != cli.Failed || !strings.Contains(got.stderr, `"account:b"`) || strings.Count(got.stdout, "paused 1h") != 2 {
		t.Errorf("pause: %+v", got)
	}
	if out := s.done("show", "account"); strings.Count(out, "broken: ") != 1 || strings.Count(out, "account:") != 3 {
		t.Errorf("show:\n%s", out)
	}
	if got := s.run("set", "account", "--smooth", "--all-values"); got.status != cli.Failed || !strings.Contains(got.stderr, `"account:b"`) {
		t.Errorf("set --smooth: %+v", got)
	}
	s.done("set", "account", "20/1h", "--yes", "--all-values")
	if out := s.done("show", "account"); strings.Contains(out, "broken") || strings.Count(out, "20/1h") != 3 {
		t.Errorf("after set:\n%s", out)
	}
	s.check(s.rdb.HSet(t.Context(), "account:b", "offset", "1e300").Err())
	s.done("delete", "account", "--yes", "--all-values")
	if n := s.rdb.Exists(t.Context(), "account:a", "account:b", "account:c").Val(); n != 0 {
		t.Errorf("%d are left", n)
	}
}
