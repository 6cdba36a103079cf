package asynqlimit

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/plain"
)

// asynqLogger is asynq's log without the line that asynq writes for each task that it does not
// archive after all. asynq writes ids and errors of tasks into its messages, and many loggers do not
// escape messages: here one message is one line of plain text.
type asynqLogger struct {
	l      *Limits
	theirs asynq.Logger // nil: ours
}

func (g asynqLogger) Debug(args ...any) { g.log(slog.LevelDebug, args) }
func (g asynqLogger) Info(args ...any)  { g.log(slog.LevelInfo, args) }
func (g asynqLogger) Error(args ...any) { g.log(slog.LevelError, args) }

func (g asynqLogger) Warn(args ...any) {
	if id, ok := strings.CutPrefix(fmt.Sprint(args...), "Retry exhausted for task id="); ok && g.l.attempts.parks(id) {
		return
	}
	g.log(slog.LevelWarn, args)
}

func (g asynqLogger) Fatal(args ...any) {
	if g.theirs != nil {
		g.theirs.Fatal(plain.Text(fmt.Sprint(args...)))
	}
	g.log(slog.LevelError, args)
	os.Exit(1)
}

func (g asynqLogger) log(level slog.Level, args []any) {
	text := plain.Text(fmt.Sprint(args...))
	if g.theirs == nil {
		g.l.logger.Log(g.l.late, level, text, "from", "asynq")
		return
	}
	switch level {
	case slog.LevelDebug:
		g.theirs.Debug(text)
	case slog.LevelInfo:
		g.theirs.Info(text)
	case slog.LevelWarn:
		g.theirs.Warn(text)
	default:
		g.theirs.Error(text)
	}
}

// parks reports whether a task with that id is put off, in any queue.
func (t *attempts) parks(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, a := range t.all {
		if key.id != id {
			continue
		}
		if f, _ := a.ending(line.Retry); f != asynqs {
			return true
		}
	}
	return false
}

const (
	// reportEvery is how often each cause is logged.
	reportEvery = time.Minute
	// maxCauses bounds what a process remembers and logs, because types come from producers. All
	// further types share one cause.
	maxCauses   = 100
	otherCauses = "other types"
)

// reports count how often each cause has kept jobs from running.
type reports struct {
	mu     sync.Mutex
	causes map[string]*report
}

type report struct {
	last     time.Time
	attempts int
}

// add counts an attempt, and returns how many there are to report: zero if the cause was reported
// within the last minute.
func (r *reports) add(now time.Time, cause string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.causes == nil {
		r.causes = map[string]*report{}
	}
	if r.causes[cause] == nil && len(r.causes) >= maxCauses {
		maps.DeleteFunc(r.causes, func(_ string, c *report) bool { return now.Sub(c.last) > 2*reportEvery })
		if len(r.causes) >= maxCauses {
			cause = otherCauses
		}
	}
	c := r.causes[cause]
	if c == nil {
		c = &report{}
		r.causes[cause] = c
	}
	c.attempts++
	if now.Sub(c.last) < reportEvery {
		return 0
	}
	n := c.attempts
	c.attempts, c.last = 0, now
	return n
}
