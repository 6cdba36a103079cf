package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestDemo(t *testing.T) {
	got := runCommand(t.Context(), "--demo", "--json")
	if got.status != exitDone {
		t.Fatalf("status %d\n%s%s", got.status, got.stdout, got.stderr)
	}
	line, rest, _ := strings.Cut(got.stdout, "\n")
	if rest != "" {
		t.Errorf("standard output goes on after the summary: %q", rest)
	}
	var s summary
	if err := json.Unmarshal([]byte(line), &s); err != nil {
		t.Fatalf("%v in %q", err, line)
	}
	t.Logf("%.2f s, ideal %.2f s", s.Seconds, s.IdealSeconds)
	if s.Jobs != demoJobs || s.Done != demoJobs || s.Failed != 0 || s.Refused != 0 || s.Peak > s.Limit {
		t.Errorf("summary %s", line)
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
	if status := run(ctx, []string{"--demo"}, nil, stdout, &stderr); status != exitFailed {
		t.Errorf("status %d, want %d", status, exitFailed)
	}
	if !strings.Contains(stdout.String(), "Stopped before all jobs were done.") {
		t.Errorf("no verdict:\n%s%s", stdout, &stderr)
	}
}
