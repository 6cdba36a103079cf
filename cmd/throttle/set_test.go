package main

import (
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// change is what verbs that change something print with --json.
type change struct{ Before, After *limiter }

func TestSetKeepsUsageAndWhatIsNotNamed(t *testing.T) {
	s := newSite(t)
	was := throttle.Rate{Permits: 100, Interval: time.Hour, Guard: 20 * time.Millisecond, Window: throttle.Calendar, Offset: time.Minute, KeepAlive: 2 * time.Hour}
	s.limiter("api", was, 30)
	tests := []struct {
		args []string
		want func(r *throttle.Rate)
	}{
		{[]string{"50/1h"}, func(r *throttle.Rate) { r.Permits = 50 }},
		{[]string{"--smooth"}, func(r *throttle.Rate) { r.Smooth = true }},
		{[]string{"80/1h", "--smooth=false", "--guard", "-1ns"}, func(r *throttle.Rate) { r.Permits, r.Smooth, r.Guard = 80, false, -1 }},
		{[]string{"--guard", "0"}, func(r *throttle.Rate) { r.Guard = 50 * time.Millisecond }},
		{[]string{"--offset", "2m", "--keep-alive", "3h"}, func(r *throttle.Rate) { r.Offset, r.KeepAlive = 2*time.Minute, 3*time.Hour }},
		{[]string{"--window", "sliding", "--keep-alive", "0"}, func(r *throttle.Rate) { r.Window, r.Offset, r.KeepAlive = throttle.Sliding, 0, 0 }},
		{[]string{"80/2h"}, func(r *throttle.Rate) { r.Interval = 2 * time.Hour }}, // its guard is the default, and stays so
		{[]string{"80/1s"}, func(r *throttle.Rate) { r.Interval, r.Guard = time.Second, 10*time.Millisecond }},
	}
	rate := was
	for _, tt := range tests {
		before := rate
		tt.want(&rate)
		args := append([]string{"set", "api"}, tt.args...)
		got := decode[change](t, s.done(append(args, "--json")...))
		if got.Before.Rate != before.String() || got.After.Rate != rate.String() {
			t.Errorf("%v: printed %s -> %s, want %s -> %s", args, got.Before.Rate, got.After.Rate, before, rate)
		}
		u := s.usage("api")
		if u.Rate != rate {
			t.Errorf("%v: the rate is %#v, want %#v", args, u.Rate, rate)
		}
		if rate.Interval >= time.Hour && u.Used != 30 {
			t.Errorf("%v: %d used, want the 30 as before", args, u.Used)
		}
	}
}

// TestSetOfALimitThatAdapts: set says from where the limit goes on, which may not be what was asked for.
func TestSetOfALimitThatAdapts(t *testing.T) {
	s := newSite(t)
	l := s.limiter("api", throttle.Rate{Permits: 10, Interval: time.Hour}, 0)
	if err := l.SetAdapt(t.Context(), throttle.Adapt{Min: 5, Max: 200}); err != nil {
		t.Fatal(err)
	}
	for rate, want := range map[string]string{"50/1h": "goes on from 50;", "500/1h": "goes on from 200;", "1/1h": "goes on from 5;"} {
		if got := s.run("set", "api", rate); got.status != cli.Done || !strings.Contains(got.stderr, want) {
			t.Errorf("set %s: status %d, %q, want %q", rate, got.status, got.stderr, want)
		}
	}
	if got := s.run("set", "api", "500/1h", "--pin"); got.stderr != "" {
		t.Errorf("pinned: %q", got.stderr)
	}
}

func TestSetPrintsBeforeAndAfter(t *testing.T) {
	s := newSite(t)
	got := s.run("set", "api", "100/1h", "--create")
	want := "api\n  before  no such limit\n  after   100/1h overall, guard 50ms; 0 used, 0 reserved, 100 available\n"
	if got.status != cli.Done || got.stdout != want || !strings.Contains(got.stderr, "not pinned") {
		t.Errorf("printed %q and %q, want %q", got.stdout, got.stderr, want)
	}
	got = s.run("set", "api", "50/1h", "--pin")
	want = "api\n  before  100/1h overall, guard 50ms; 0 used, 0 reserved, 100 available\n" +
		"  after   50/1h overall, guard 50ms, pinned; 0 used, 0 reserved, 50 available\n"
	if got.status != cli.Done || got.stdout != want || got.stderr != "" {
		t.Errorf("printed %q and %q, want %q", got.stdout, got.stderr, want)
	}
	got = s.run("set", "each", "5/1h", "--create", "--per-client", "--window", "calendar", "--offset", "8m", "--keep-alive", "2h", "--smooth", "--guard", "-1ns")
	if !strings.Contains(got.stdout, "after   5/1h per_client, no guard, smooth, calendar windows from 8m, kept 2h after use; no worker has used it lately") {
		t.Errorf("printed %q and %q", got.stdout, got.stderr)
	}
}

func TestSetRefuses(t *testing.T) {
	s := newSite(t)
	s.limiter("api", perHour(100), 30)
	for _, tt := range []struct{ args, words []string }{
		{[]string{"set", "api", "--offset", "1m"}, []string{"offset", "calendar"}},
		{[]string{"set", "api", "--window", "monthly"}, []string{`"monthly"`, "sliding or calendar"}},
		{[]string{"set", "api", "--keep-alive", "1m"}, []string{"keep-alive 1m0s", "interval"}},
		{[]string{"set", "api", "--guard", "2h"}, []string{"guard 2h0m0s"}},
		{[]string{"set", "api", "--per-client"}, []string{"forgets", "--yes"}},
		{[]string{"set", "api", "--pin=false"}, []string{"--value", "throttle unpin api"}},
		{[]string{"set", "api", "50/1h", "--pin=false"}, []string{"--value", "throttle unpin api"}},
		{[]string{"set", "api", "--pin=false", "--value", "acme"}, []string{"set wants a RATE"}},
		{[]string{"delete", "api"}, []string{"forgets", "--yes"}},
	} {
		s.fails(cli.Usage, tt.args, tt.words)
	}
	u := s.usage("api")
	if u.Rate.Permits != 100 || u.Rate.Type != throttle.Overall || u.Used != 30 {
		t.Errorf("it changed all the same: %+v", u)
	}
	got := decode[change](t, s.done("set", "api", "--per-client", "--yes", "--json"))
	if got.Before.Used != 30 || got.After.Type != "per_client" || got.After.Used != 0 {
		t.Errorf("with --yes: before %+v, after %+v", got.Before, got.After)
	}
	if got := decode[change](t, s.done("set", "api", "--per-client", "90/1h", "--json")); got.After.Permits != 90 {
		t.Errorf("the same type again: %+v", got.After)
	}
}

func TestPauseResumePinUnpin(t *testing.T) {
	s := newSite(t)
	l := s.limiter("api", perHour(100), 0)
	var was bool // paused or pinned, before the step
	for _, tt := range []struct {
		args []string
		is   bool
		of   func(*limiter) bool
	}{
		{[]string{"pause", "api", "15m"}, true, func(l *limiter) bool { return l.PausedMS > 0 }},
		{[]string{"resume", "api"}, false, func(l *limiter) bool { return l.PausedMS > 0 }},
		{[]string{"pin", "api"}, true, func(l *limiter) bool { return l.Pinned }},
		{[]string{"unpin", "api"}, false, func(l *limiter) bool { return l.Pinned }},
	} {
		got := decode[change](t, s.done(append(tt.args, "--json")...))
		if tt.of(got.Before) != was || tt.of(got.After) != tt.is {
			t.Errorf("%v: %v -> %v, want %v -> %v", tt.args, tt.of(got.Before), tt.of(got.After), was, tt.is)
		}
		was = tt.is
		if paused := tt.args[0] == "pause"; paused {
			if ok, err := l.TryAcquire(t.Context(), 1); ok || err != nil {
				t.Errorf("a permit in the pause: %v, %v", ok, err)
			}
		}
	}
	if ok, err := l.TryAcquire(t.Context(), 1); !ok || err != nil {
		t.Errorf("no permit after the pause: %v, %v", ok, err)
	}
	if text := s.done("pause", "api", "90s"); !strings.Contains(text, "after   100/1h overall, guard 50ms, paused 1m30s; 1 used") {
		t.Errorf("printed %q", text)
	}
	if text := s.done("pause", "api", "1s"); strings.Contains(text, "paused 1s") {
		t.Errorf("a longer pause was cut short: %q", text)
	}
}

func TestDelete(t *testing.T) {
	s := newSite(t)
	s.limiter("api", perHour(100), 30)
	s.limiter("each", throttle.Rate{Permits: 5, Interval: time.Hour, Type: throttle.PerClient}, 3)
	got := decode[change](t, s.done("delete", "api", "--yes", "--json"))
	if got.Before.Used != 30 || got.After != nil {
		t.Errorf("printed %+v", got)
	}
	if text := s.done("delete", "each", "-y"); !strings.Contains(text, "after   no such limit") {
		t.Errorf("printed %q", text)
	}
	for _, key := range s.rdb.Keys(t.Context(), "*").Val() {
		if !strings.Contains(key, ":reply:") {
			t.Errorf("%q is left", key)
		}
	}
	s.fails(cli.Failed, []string{"delete", "api", "--yes"}, []string{`"api"`, "throttle list"})
}

func TestCompletion(t *testing.T) {
	s := newSite(t)
	for _, name := range []string{"stripe", "stripe-worker", "strange*name", "other"} {
		s.limiter(name, perHour(1), 0)
	}
	for _, tt := range []struct{ args, want []string }{
		{[]string{"show", "str"}, []string{"strange*name", "stripe", "stripe-worker"}},
		{[]string{"pause", "strange*"}, []string{"strange*name"}},
		{[]string{"set", "stripe", ""}, nil},
		{[]string{"delete", "zz"}, nil},
	} {
		got := runCommand(t.Context(), append([]string{"__complete", "--redis", s.addr}, tt.args...)...)
		// The last two lines are cobra's: what the shell may do beside.
		want := strings.Join(append(tt.want, ":4"), "\n") + "\n"
		if got.status != cli.Done || got.stdout != want {
			t.Errorf("%v: completions %q, want %q", tt.args, got.stdout, want)
		}
	}
	got := runCommand(t.Context(), "__complete", "--redis", "127.0.0.1:1", "show", "x")
	if got.stdout != ":1\n" {
		t.Errorf("without Redis: completions %q, want none, and the directive for an error", got.stdout)
	}
}

// A limit whose hash somebody has spoilt is an error that names it, at once, for
// all commands but those that replace or remove it.
func TestSpoiltLimit(t *testing.T) {
	s := newSite(t)
	spoil := func() {
		s.check(s.rdb.HSet(t.Context(), "api", "rate", "10", "interval", "1000", "window", 1, "guard", 900000, "offset", "1e300", "pause", "1e300").Err())
	}
	for _, mend := range [][]string{{"set", "api", "5/1s"}, {"set", "api", "5/1s", "--pin"}, {"delete", "api", "--yes"}} {
		spoil()
		for _, args := range [][]string{{"show", "api"}, {"pause", "api", "1s"}, {"resume", "api"}, {"set", "api", "--smooth"}, {"pin", "api"}} {
			got := s.run(args...)
			if got.status != cli.Failed || !strings.Contains(got.stderr, `limiter "api"`) || !strings.Contains(got.stderr, "makes no sense") {
				t.Errorf("%v: status %d, %q", args, got.status, got.stderr)
			}
		}
		if got := s.run(mend...); got.status != cli.Done {
			t.Errorf("%v: status %d, %q", mend, got.status, got.stderr)
		}
		switch got := s.run("show", "api"); {
		case mend[0] == "delete" && got.status != cli.Failed:
			t.Errorf("after %v: %q", mend, got.stdout)
		case mend[0] == "set" && !strings.Contains(got.stdout, "5/1s"):
			t.Errorf("after %v: %q, %q", mend, got.stdout, got.stderr)
		}
	}
}
