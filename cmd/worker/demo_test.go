package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/cli"
)

// TestDemo: all jobs are done, and the exit status agrees with the summary.
// Whether every request was in time depends on the machine, and on the race
// detector, which makes one process of Redis, API and workers ten times slower:
// .ci/run asks that of the built command.
func TestDemo(t *testing.T) {
	got := runCommand(t.Context(), "--demo", "--json")
	line, rest, _ := strings.Cut(got.stdout, "\n")
	if rest != "" {
		t.Errorf("standard output goes on after the summary: %q", rest)
	}
	var s summary
	if err := json.Unmarshal([]byte(line), &s); err != nil {
		t.Fatalf("%v in %q\n%s", err, line, got.stderr)
	}
	t.Log(line)
	if s.Jobs != demoJobs || s.Done != demoJobs || s.Failed != 0 {
		t.Errorf("summary %s", line)
	}
	if (s.Peak > s.Limit) != (s.Refused > 0) {
		t.Errorf("refused %d with a peak of %d", s.Refused, s.Peak)
	}
	if want := map[bool]int{true: cli.Done, false: cli.Failed}[s.good()]; got.status != want {
		t.Errorf("status %d, want %d\n%s", got.status, want, got.stderr)
	}
	if !strings.Contains(got.stderr, "busiest") {
		t.Errorf("no live view on standard error:\n%s", got.stderr)
	}
}

func TestDemoIdeal(t *testing.T) {
	if want := 7 * 1050 * time.Millisecond; demoIdeal != want {
		t.Errorf("ideal %v, want %v: 8 bursts, 7 intervals and guards between them", demoIdeal, want)
	}
	if rate, err := demoConfig("", "").Limits["api"].ThrottleRate(); err != nil || rate.String() != "50/1s" {
		t.Errorf("rate %v, %v", rate, err)
	}
}

// stopAt calls stop as soon as the text appears in what is written.
type stopAt struct {
	bytes.Buffer
	text string
	stop context.CancelFunc
}

func (s *stopAt) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.text) {
		s.stop()
	}
	return s.Buffer.Write(p)
}

func TestDemoInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	stdout := &stopAt{text: "0 of 360 jobs", stop: cancel}
	var stderr bytes.Buffer
	if status := cli.Run(ctx, newCommand(), []string{"--demo"}, nil, stdout, &stderr); status != cli.Failed {
		t.Errorf("status %d, want %d", status, cli.Failed)
	}
	if !strings.Contains(stdout.String(), "Stopped before all jobs were done.") {
		t.Errorf("no verdict:\n%s%s", stdout, &stderr)
	}
	if stderr.String() != "worker: interrupted\n" {
		t.Errorf("the error is %q: the summary has the numbers", &stderr)
	}
}
