//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/check"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/judge"
	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/written"
)

// TestMain is also the judge's process, which is this program again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == judge.Subcommand {
		main()
	}
	goleak.VerifyTestMain(m)
}

// run runs the command.
func run(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = cli.Run(ctx, newCommand(), args, strings.NewReader(""), &out, &errs)
	return status, out.String(), errs.String()
}

// TestQuick breaks something for real, beside a report that is there already.
func TestQuick(t *testing.T) {
	redistest.Require(t)
	t.Setenv("TMPDIR", t.TempDir())
	if err := os.WriteFile(filepath.Join(os.TempDir(), reportFile), []byte("whole"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := run(t.Context(), "--quick", "--length", "9s", "--fault", "kill-redis", "--seed", "7")
	if status != cli.Done {
		t.Fatalf("exit status %d\n%s%s", status, stdout, stderr)
	}
	for _, want := range []string{"run 1 of 1, about 9s left: seed 7, 3s kill-redis ... busiest ", "0 lost"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("the progress lacks %q:\n%s", want, stderr)
		}
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	file := lines[len(lines)-1]
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"**A partial run.**", "\n| windows above the limit", "\n| jobs lost", "\n| Redis: kill -9, started again with its AOF | 1 "} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q:\n%s", file, want, text)
		}
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "jobthrottle-*")); err != nil || len(left) != 1 || left[0] != filepath.Dir(file) {
		t.Errorf("left behind: %v (%v), want only %s", left, err, filepath.Dir(file))
	}
}

// TestVerdict: a promise that is broken fails the command, and says which and where.
func TestVerdict(t *testing.T) {
	sound := check.Result{Busiest: check.Window{Arrivals: 100, Limit: 100}}
	above := check.Result{Busiest: check.Window{Arrivals: 101, Limit: 100, Above: 1}}
	lost := sound
	lost.Lost = []string{"job-1", "job-2", "job-3", "job-4", "job-5", "job-6"}
	tests := []struct {
		name string
		m    measured
		want string // "" is no error
	}{
		{"sound", measured{results: []check.Result{sound}}, ""},
		{"above", measured{results: []check.Result{sound, above}}, "seed 2: 101 arrivals in one interval, the limit was 100"},
		{"lost", measured{results: []check.Result{lost}}, "seed 1: 6 jobs lost: job-1, job-2, job-3, job-4, job-5, ..."},
		{"failed", measured{failures: []error{errors.New("broken")}}, "broken"},
		{"exempt", measured{opts: options{fault: "flushall"}, results: []check.Result{above}}, ""},
	}
	for _, tt := range tests {
		tt.m.seeds = []uint64{1, 2}
		err := tt.m.verdict()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestUsage(t *testing.T) {
	tests := []struct {
		args   []string
		status int
		text   string // on standard error, or for --help on standard output
	}{
		{[]string{"--help"}, cli.Done, "half-open"},
		{[]string{"all"}, cli.Usage, `unexpected argument "all"`},
		{[]string{"--seeds", "0"}, cli.Usage, "--seeds 0: want 1 or more"},
		{[]string{"--quick", "--seeds", "5"}, cli.Usage, "leave out --seeds"},
		{[]string{"--operators", "--fault", "crash"}, cli.Usage, "there is none beside --fault crash"},
		{[]string{"--length", "5s"}, cli.Usage, "--length 5s is too short"},
		{[]string{"--fault", "flood"}, cli.Usage, "--fault flood: there is no such fault, want one of kill-worker, "},
		{[]string{judge.Subcommand}, cli.Failed, "accepts 1 arg"},
	}
	for _, tt := range tests {
		status, stdout, stderr := run(t.Context(), tt.args...)
		if status != tt.status {
			t.Errorf("chaos %v: exit status %d, want %d", tt.args, status, tt.status)
		}
		if said := stdout + stderr; !strings.Contains(said, tt.text) {
			t.Errorf("chaos %v said %q, want %q in it", tt.args, said, tt.text)
		}
	}
}

// TestOutDir: partial figures never replace whole ones by default.
func TestOutDir(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	named := filepath.Join(t.TempDir(), "a", "b")
	whole := options{seeds: wholeSeeds, length: wholeLength}
	quick, alone, few, short, elsewhere := whole, whole, whole, whole, whole
	quick.quick, alone.fault, few.seeds, short.length, elsewhere.out = true, "cut", 3, wholeLength/2, named
	for _, tt := range []struct {
		opts options
		want string // "" means a new temporary directory
	}{
		{whole, "."}, {quick, ""}, {alone, ""}, {few, ""}, {short, ""}, {elsewhere, named},
	} {
		got, err := outDir(tt.opts)
		if err != nil {
			t.Fatal(err)
		}
		if tt.want == "" && filepath.Dir(got) != os.TempDir() || tt.want != "" && got != tt.want {
			t.Errorf("%+v: %s, want %q", tt.opts, got, tt.want)
		}
	}
}

// TestReportHasASection: the page has a section for what a run writes.
func TestReportHasASection(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", reportFile))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := written.Splice(string(text), itself, "new"); err != nil {
		t.Errorf("%s: %v", reportFile, err)
	}
}
