package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/bench/internal/scenario"
	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs the command.
func run(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = cli.Run(ctx, newCommand(), args, strings.NewReader(""), &out, &errs)
	return status, out.String(), errs.String()
}

// TestQuick runs one scenario for real, beside a report that is there already.
func TestQuick(t *testing.T) {
	redistest.Require(t)
	t.Chdir(t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	if err := os.WriteFile(reportFile, []byte("whole"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := run(t.Context(), "--quick", "--only", scenario.Contended1000)
	if status != cli.Done {
		t.Fatalf("exit status %d\n%s", status, stderr)
	}
	for _, want := range []string{"step 1 of ", "round 1 of 1, contended-1000, jobthrottle ... permits/s", "redis_rate"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("the progress lacks %q:\n%s", want, stderr)
		}
	}
	files := strings.Fields(stdout)
	if len(files) != 2 {
		t.Fatalf("%q, want the names of two files", stdout)
	}
	for file, wants := range map[string][]string{
		files[0]: {"its figures mean nothing", "\n## Contended: 1000/s", "\n| jobthrottle ", "\n| redis_rate "},
		files[1]: {"<svg", "the limit, 1000"},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !bytes.Contains(text, []byte(want)) {
				t.Errorf("%s lacks %q:\n%s", file, want, text)
			}
		}
	}
	if text, err := os.ReadFile(reportFile); err != nil || string(text) != "whole" {
		t.Errorf("the report in the current directory is now %q (%v)", text, err)
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "jobthrottle-bench-redis-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestInterrupted: Ctrl-C ends what runs, and writes nothing.
func TestInterrupted(t *testing.T) {
	redistest.Require(t)
	out := filepath.Join(t.TempDir(), "out")
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stderr := &watched{until: "jobthrottle ... ", found: cancel}
	status := cli.Run(ctx, newCommand(), []string{"--only", scenario.Contended1000, "--out", out}, nil, &bytes.Buffer{}, stderr)
	if status != cli.Failed || !strings.Contains(stderr.text.String(), "interrupted in step 1 of ") {
		t.Errorf("exit status %d\n%s", status, stderr.text.String())
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is there: %v", out, err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || slices.ContainsFunc(left, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), "jobthrottle-bench") }) {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// watched calls found once until has been written to it.
type watched struct {
	text  bytes.Buffer
	until string
	found func()
}

func (w *watched) Write(p []byte) (int, error) {
	w.text.Write(p)
	if strings.Contains(w.text.String(), w.until) {
		w.found()
	}
	return len(p), nil
}

func TestUsage(t *testing.T) {
	tests := []struct {
		args   []string
		status int
		text   string // on standard error, or for --help on standard output
	}{
		{[]string{"--help"}, cli.Done, "never-binding-256"},
		{[]string{"--version"}, cli.Done, "bench version"},
		{[]string{"all"}, cli.Usage, `unexpected argument "all"`},
		{[]string{"--rounds", "0"}, cli.Usage, "--rounds 0: want 1 or more"},
		{[]string{"--rounds", "many"}, cli.Usage, "bench --help"},
		{[]string{"--quick", "--rounds", "5"}, cli.Usage, "leave out --rounds"},
		{[]string{"--only", "contended,nothing"}, cli.Usage, "--only nothing: there is no such scenario, want some of contended-1000, "},
		{[]string{"--only", ""}, cli.Usage, "--only names no scenario"},
	}
	for _, tt := range tests {
		status, stdout, stderr := run(t.Context(), tt.args...)
		if status != tt.status {
			t.Errorf("bench %v: exit status %d, want %d", tt.args, status, tt.status)
		}
		if said := stdout + stderr; !strings.Contains(said, tt.text) {
			t.Errorf("bench %v said %q, want %q in it", tt.args, said, tt.text)
		}
	}
}

func TestWants(t *testing.T) {
	tests := []struct {
		only []string
		want []string
	}{
		{nil, scenario.Names()},
		{[]string{"contended", "drain"}, []string{scenario.Contended1000, scenario.Contended50, scenario.Drain}},
		{[]string{"never-binding-1"}, []string{scenario.NeverBinding(1)}}, // and not 16
	}
	for _, tt := range tests {
		o := options{only: tt.only}
		got := slices.DeleteFunc(scenario.Names(), func(name string) bool { return !o.wants(name) })
		if !slices.Equal(got, tt.want) {
			t.Errorf("--only %v: %v, want %v", tt.only, got, tt.want)
		}
	}
}

// TestOutDir: a partial report never replaces a whole one by default.
func TestOutDir(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	named := filepath.Join(t.TempDir(), "a", "b")
	tests := []struct {
		opts options
		want string // "" means a new temporary directory
	}{
		{options{rounds: 5}, "."},
		{options{rounds: 1, quick: true}, ""},
		{options{rounds: 5, only: []string{"drain"}}, ""},
		{options{rounds: 1, quick: true, out: named}, named},
	}
	for _, tt := range tests {
		got, err := outDir(tt.opts)
		if err != nil {
			t.Fatal(err)
		}
		if tt.want == "" && filepath.Dir(got) != os.TempDir() || tt.want != "" && got != tt.want {
			t.Errorf("%+v: %s, want %q", tt.opts, got, tt.want)
		}
		if _, err := os.Stat(got); err != nil {
			t.Error(err)
		}
	}
}

// TestMeasureGoesOn: a peer that fails costs its own figures, not the others'.
func TestMeasureGoesOn(t *testing.T) {
	broken := errors.New("broken")
	turn := 0
	s := scenario.Scenario{Name: "s", Runs: []scenario.Run{
		{Peer: "sound", Measure: func(context.Context) (scenario.Result, error) { return scenario.Result{}, nil }},
		{Peer: "shaky", Measure: func(context.Context) (scenario.Result, error) {
			turn++
			if turn == 1 {
				return scenario.Result{}, broken
			}
			return scenario.Result{}, nil
		}},
	}}
	var stderr bytes.Buffer
	m, err := measure(t.Context(), []scenario.Scenario{s}, 2, &stderr)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.rounds["s"].Peers(); !slices.Equal(got, []string{"sound", "shaky"}) {
		t.Errorf("figures of %v, want of both: one round was fine", got)
	}
	if len(m.failures) != 1 || !errors.Is(m.failures[0], broken) || !strings.Contains(m.failures[0].Error(), "shaky in round 1 of s") {
		t.Errorf("failures %v", m.failures)
	}
	if !strings.Contains(stderr.String(), "shaky ... failed\n") {
		t.Errorf("the progress is\n%s", stderr.String())
	}
}
