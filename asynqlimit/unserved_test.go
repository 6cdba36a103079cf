package asynqlimit_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// logged is what a logger has written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSpace(l.text.String()), "\n")
}

// with returns the lines that contain the text.
func (l *logged) with(text string) []string {
	return slices.DeleteFunc(l.lines(), func(line string) bool { return !strings.Contains(line, text) })
}

// TestUnservedTypes: if the process has no handler for a type of the configuration, this is
// logged when it starts, and nothing else is.
func TestUnservedTypes(t *testing.T) {
	onBoth(t, func(s *site) {
		var log logged
		mux := asynq.NewServeMux()
		for _, pattern := range []string{"mail:", "report:daily", "x"} {
			mux.HandleFunc(pattern, s.handler(member{}))
		}
		stop := s.serve(member{mux: mux, opts: asynqlimit.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, yaml: `
limits: { api: { rate: 1000/1s } }
jobs:
  "x:job": { limits: [api] }
  "mail:send": { limits: [api] }
  "mial:send": { limits: [api] }
  "report:daily": { limits: [api] }
  "report:": { limits: [api] }
  "*": { limits: [api] }
`})
		s.enqueue("x:job", "job")
		s.awaitStarts("job", 1, 10*time.Second)
		stop()
		told := log.with("level=WARN")
		if len(told) != 1 || !strings.Contains(told[0], "type=mial:send") {
			s.t.Errorf("told %q, want one line about mial:send", told)
		}
	})
}

// TestUnservedPatterns: a process that knows the patterns of its handlers also tells the patterns of the configuration
// that none of them serves. Two patterns have types in common if one begins with the other.
func TestUnservedPatterns(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	var log logged
	mux := asynq.NewServeMux()
	registered := []string{"mail:", "report:daily", "x"}
	for _, pattern := range registered {
		mux.HandleFunc(pattern, s.handler(member{}))
	}
	stop := s.serve(member{mux: mux, yaml: `
limits: { api: { rate: 1000/1s } }
jobs:
  "mail:send:": { limits: [api] }
  "mial:send:": { limits: [api] }
  "report:*": { limits: [api] }
  "reports*": { limits: [api] }
  "x:job": { limits: [api] }
  "*": { limits: [api] }
`, opts: asynqlimit.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), HandlerPatterns: func() []string { return registered }}})
	s.enqueue("x:job", "job")
	s.awaitStarts("job", 1, 10*time.Second)
	stop()
	told := log.with("level=WARN")
	if len(told) != 2 || !strings.Contains(told[0], "type=mial:send:") || !strings.Contains(told[1], "type=reports*") {
		t.Errorf("told %q, want one line each about mial:send: and reports*", told)
	}
}

// TestTypesWithoutAPattern: the log tells once of each type that runs without limits because no pattern of the
// configuration matches it. If a pattern is similar, one of the two is probably misspelt, and it is a warning.
func TestTypesWithoutAPattern(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	var log logged
	stop := s.serve(member{opts: asynqlimit.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, yaml: `
limits: { api: { rate: 1000/1s } }
jobs:
  "x:stirpe:": { limits: [api] }
  "x:free": {}
  "y:other:": { limits: [api] }
`})
	for i, taskType := range []string{"x:stripe:charge", "x:resize", "x:stripe:charge", "x:free", "x:resize", "x:stirpe:charge"} {
		s.enqueue(taskType, fmt.Sprint("job", i))
	}
	s.awaitStarts("job", 6, 10*time.Second)
	stop()
	const says = "jobs of this type match no pattern of the configuration, and run without limits"
	infos, warnings := log.with("level=INFO msg=\""+says), log.with("level=WARN msg=\""+says)
	if len(infos) != 1 || !strings.Contains(infos[0], "type=x:resize") {
		t.Errorf("at INFO %q, want one line about x:resize", infos)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "type=x:stripe:charge similar=x:stirpe:") {
		t.Errorf("at WARN %q, want one line about x:stripe:charge, which is similar to x:stirpe:", warnings)
	}
}

// TestManyTypesWithoutAPattern: producers make up types, and the log stays short.
func TestManyTypesWithoutAPattern(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	var log logged
	stop := s.serve(member{opts: asynqlimit.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, yaml: fiftyPerSecond})
	const types = 150
	for i := range types {
		s.enqueue(fmt.Sprint("y:", i), fmt.Sprint("job", i))
	}
	s.awaitStarts("job", types, 20*time.Second)
	stop()
	if told := log.with("match no pattern"); len(told) != 100 {
		t.Errorf("told of %d types, want the first 100", len(told))
	}
}
