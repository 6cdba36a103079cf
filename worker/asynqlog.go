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

// asynqLogger is asynq's log, without what our log already says. asynq writes ids and errors of
// tasks into its messages, and its loggers do not escape them. Here one message is one line of
// plain text. While Redis does not answer, asynq says several times a second what it cannot do:
// each of these messages is logged once a minute.
type asynqLogger struct {
	*slog.Logger
	now func() time.Time

	mu   sync.Mutex
	last map[string]time.Time // of the repeated messages
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

// sayAgain is how long a message is left out after it was logged.
const sayAgain = time.Minute

// repeated are the beginnings of messages that asynq repeats while Redis does not answer.
var repeated = []string{
	"Dequeue error", "Failed to forward scheduled tasks", "Failed to write server state data", "Failed to extend lease", "Failed to delete expired completed tasks",
	"recoverer: could not list lease expired tasks", "recoverer: could not reclaim stale aggregation sets", "cannot subscribe to cancelation channel",
}

// news reports whether a message is to be logged: asynq does not repeat it, or it was not
// logged for sayAgain.
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
