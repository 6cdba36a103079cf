//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/bench/internal/redisserver"
	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestMain is also the command that the soak under test starts as its processes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == newMemberCommand().Name() {
		main()
	}
	goleak.VerifyTestMain(m)
}

// soakFor runs the command.
func soakFor(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = cli.Run(t.Context(), newCommand(), args, strings.NewReader(""), &out, &errs)
	return status, out.String(), errs.String()
}

func TestSoak(t *testing.T) {
	redistest.Require(t)
	dir := filepath.Join(t.TempDir(), "new")
	status, stdout, stderr := soakFor(t, "--length", "10s", "--rate", "1000", "--out", dir)
	if status != cli.Done {
		t.Fatalf("exit status %d\n%s", status, stderr)
	}
	for _, want := range []string{"is stopped for", "connections are killed", "scripts are forgotten", "goroutines,"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("the progress lacks %q:\n%s", want, stderr)
		}
	}
	section, err := os.ReadFile(filepath.Join(dir, sectionFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"judges nothing", "| RSS of process 2 |", "| keys that do not expire |"} {
		if !strings.Contains(string(section), want) {
			t.Errorf("the section lacks %q:\n%s", want, section)
		}
	}
	if !strings.HasPrefix(stdout, string(section)) {
		t.Errorf("said\n%s", stdout)
	}
}

// TestVerdict: half an hour in which one thing grew.
func TestVerdict(t *testing.T) {
	run := func(grow func(x *sample, share float64)) *soak {
		s := &soak{opts: options{length: 30 * time.Minute, rate: 5000}}
		for at := 10 * time.Second; at <= s.opts.length; at += 10 * time.Second {
			x := sample{at: at, rss: []int64{30e6, 31e6}, goroutines: []int{70, 71}, redis: redisserver.Memory{Used: 2e6, Keys: 1000, Lasting: 7}}
			grow(&x, at.Minutes()/30)
			s.samples = append(s.samples, x)
		}
		return s
	}
	for _, tt := range []struct {
		grown string
		grow  func(*sample, float64)
	}{
		{"", func(*sample, float64) {}},
		{"", func(x *sample, share float64) { x.rss[0] += int64(1e6 * share) }}, // 3 %
		{"", func(x *sample, share float64) { x.rss[0] -= int64(9e6 * share) }},
		{"", func(x *sample, share float64) { x.redis.Keys += int64(500 * max(0, 0.1-share)) }}, // before it settled
		{"RSS of process 2", func(x *sample, share float64) { x.rss[1] += int64(9e6 * share) }},
		{"goroutines of process 1", func(x *sample, share float64) { x.goroutines[0] += int(20 * share) }},
		{"memory of Redis", func(x *sample, share float64) { x.redis.Used += int64(1e6 * share) }},
		{"keys", func(x *sample, share float64) { x.redis.Keys += int64(100 * share) }},
		{"keys that do not expire", func(x *sample, share float64) { x.redis.Lasting += int64(2 * share) }},
	} {
		v := run(tt.grow).judge()
		err := v.err()
		if (err != nil) != (tt.grown != "") || err != nil && !strings.HasSuffix(err.Error(), ": "+tt.grown) {
			t.Errorf("error %v, want one of %q", err, tt.grown)
		}
		if got := strings.Count(v.section(), "| grew |"); (got == 1) != (tt.grown != "") {
			t.Errorf("%q: %d rows say that it grew:\n%s", tt.grown, got, v.section())
		}
	}
}

func TestBadUsage(t *testing.T) {
	for _, args := range [][]string{{"--length", "1s"}, {"--length", "soon"}, {"--rate", "0"}, {"more"}, {"--no"}} {
		if status, _, stderr := soakFor(t, args...); status != cli.Usage || !strings.HasPrefix(stderr, "soak: ") {
			t.Errorf("%q: exit status %d, %q", args, status, stderr)
		}
	}
}

func TestMemberSaysWhatIsWrong(t *testing.T) {
	status, _, stderr := soakFor(t, "member", "--redis", "127.0.0.1:1", "--rate", "0")
	if status != cli.Failed || !strings.Contains(stderr, "permits 0") {
		t.Errorf("exit status %d, %q", status, stderr)
	}
}
