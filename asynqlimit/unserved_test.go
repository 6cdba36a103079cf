package asynqlimit_test

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
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
