package worker

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/plain"
)

// asynqLogger is asynq's log, without what ours says already. asynq writes ids and errors of
// tasks into its messages, where no logger escapes them: one message is one line, of plain
// text. While Redis is away asynq says several times a second that it cannot do this or
// that: each of these is there once a minute.
type asynqLogger struct {
	*slog.Logger
	now func() time.Time

	mu   sync.Mutex
	last map[string]time.Time // of those that are repeated
}

func newAsynqLogger(logger *slog.Logger) *asynqLogger {
	return &asynqLogger{Logger: logger, now: time.Now, last: map[string]time.Time{}}
}

func (l *asynqLogger) Debug(args ...any) { l.Logger.Debug(plain.Text(fmt.Sprint(args...))) }
func (l *asynqLogger) Info(args ...any)  { l.Logger.Info(plain.Text(fmt.Sprint(args...))) }

func (l *asynqLogger) Warn(args ...any) {
	text := fmt.Sprint(args...)
	if !strings.HasPrefix(text, "Retry exhausted for task id=") && l.news(text) { // "job failed" says that it is archived
		l.Logger.Warn(plain.Text(text))
	}
}

func (l *asynqLogger) Error(args ...any) {
	if text := fmt.Sprint(args...); l.news(text) {
		l.Logger.Error(plain.Text(text))
	}
}

func (l *asynqLogger) Fatal(args ...any) {
	l.Logger.Error(plain.Text(fmt.Sprint(args...)))
	os.Exit(1)
}

// sayAgain is how long a message is left out that was logged before.
const sayAgain = time.Minute

// repeated is how messages begin that asynq repeats for as long as Redis is away.
var repeated = []string{
	"Dequeue error", "Failed to forward scheduled tasks", "Failed to write server state data", "Failed to extend lease", "Failed to delete expired completed tasks",
	"recoverer: could not list lease expired tasks", "recoverer: could not reclaim stale aggregation sets", "cannot subscribe to cancelation channel",
}

// news says whether a message is to be logged: it is none that asynq repeats, or was not
// logged for a while.
func (l *asynqLogger) news(text string) bool {
	i := slices.IndexFunc(repeated, func(begin string) bool { return strings.HasPrefix(text, begin) })
	if i < 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if last, ok := l.last[repeated[i]]; ok && now.Sub(last) < sayAgain {
		return false
	}
	l.last[repeated[i]] = now
	return true
}
