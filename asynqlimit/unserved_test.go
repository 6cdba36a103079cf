package asynqlimit_test

import (
	"bytes"
	"log/slog"
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
		var told []string
		for _, line := range log.lines() {
			if strings.Contains(line, "level=WARN") {
				told = append(told, line)
			}
		}
		if len(told) != 1 || !strings.Contains(told[0], "type=mial:send") {
			s.t.Errorf("told %q, want one line about mial:send", told)
		}
	})
}
