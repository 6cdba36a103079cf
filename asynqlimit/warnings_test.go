package asynqlimit_test

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// logLines keeps each line that is written.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(b))
	return len(b), nil
}

// TestUnusedLimitIsTold: a limit that no job uses is applied, for programs, and the log says once where it is.
func TestUnusedLimitIsTold(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	var log logLines
	stop := s.serve(member{yaml: "limits:\n  api: { rate: 7/1s }\n", opts: asynqlimit.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
	s.enqueue("x:job", "job")
	s.awaitStarts("job", 1, 10*time.Second)
	if rate, err := s.limiter("api").Config(t.Context()); err != nil || rate.Permits != 7 {
		t.Errorf("%+v, %v, want 7 permits", rate, err)
	}
	stop()
	told := slices.DeleteFunc(log.lines, func(line string) bool { return !strings.Contains(line, "no job uses this limit") })
	if len(told) != 1 || !strings.Contains(told[0], "level=WARN") || !strings.Contains(told[0], "config.yaml:2:3: limits.api: ") {
		t.Errorf("%q, want one warning with the position of the limit", told)
	}
}
