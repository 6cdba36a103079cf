package asynqlimit_test

import (
	"context"
	"errors"
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

// messages are what a logger that escapes nothing was given, as slog's default handler and asynq's
// own logger do.
type messages struct {
	mu   sync.Mutex
	text []string
}

func (m *messages) add(args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.text = append(m.text, fmt.Sprint(args...))
}

func (m *messages) all() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.text)
}

func (m *messages) Debug(args ...any) { m.add(args...) }
func (m *messages) Info(args ...any)  { m.add(args...) }
func (m *messages) Warn(args ...any)  { m.add(args...) }
func (m *messages) Error(args ...any) { m.add(args...) }
func (m *messages) Fatal(args ...any) { m.add(args...) }

func (m *messages) Enabled(context.Context, slog.Level) bool { return true }
func (m *messages) WithAttrs([]slog.Attr) slog.Handler       { return m }
func (m *messages) WithGroup(string) slog.Handler            { return m }
func (m *messages) Handle(_ context.Context, r slog.Record) error {
	m.add(r.Message)
	return nil
}

// TestStrangersInTheLog: asynq writes ids of tasks, and where handlers panic, into its messages. They make
// no line of their own in a log, and a terminal takes no command from them.
func TestStrangersInTheLog(t *testing.T) {
	t.Parallel()
	const forged = "x\n2026/01/01 00:00:00 INFO FORGED\x1b[2J\u202e"
	for name, to := range map[string]func(*messages, *member){
		"logger of the limits": func(log *messages, m *member) { m.opts.Logger = slog.New(log) },
		"logger of the server": func(log *messages, m *member) { m.asynq.Logger = log },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			log := &messages{}
			m := member{yaml: "limits: { api: { rate: 100/1s } }\njobs: { x: { limits: [api] } }\n", opts: asynqlimit.Options{}, handle: func(_ context.Context, task *asynq.Task) error {
				if string(task.Payload()) == "panic" {
					panic(forged)
				}
				return errors.New(forged)
			}}
			to(log, &m)
			s.enqueue("x", "id"+forged, asynq.MaxRetry(0))
			s.enqueuePayload("x", "panics", []byte("panic"), asynq.MaxRetry(0))
			stop := s.serve(m)
			s.awaitArchived(2, 10*time.Second)
			stop()
			ids, panics := 0, 0
			for _, text := range log.all() {
				if strings.ContainsAny(text, "\n\x1b\u202e") {
					t.Errorf("not one plain line: %q", text)
				}
				if strings.Contains(text, "FORGED") {
					ids++
				}
				if strings.Contains(text, "panic") {
					panics++
				}
			}
			if ids == 0 || panics == 0 {
				t.Errorf("%d messages have the id, and %d tell of the panic: %q", ids, panics, log.all())
			}
		})
	}
}
