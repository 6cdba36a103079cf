package worker

import (
	"fmt"

	"github.com/jobthrottle/jobthrottle/internal/plain"
)

// asynq writes ids and errors of tasks into its messages, where no logger
// escapes them: one message is one line, of plain text. Warn is in pool.go.

// Debug implements asynq.Logger.
func (l asynqLogger) Debug(args ...any) { l.SugaredLogger.Debug(plain.Text(fmt.Sprint(args...))) }

// Info implements asynq.Logger.
func (l asynqLogger) Info(args ...any) { l.SugaredLogger.Info(plain.Text(fmt.Sprint(args...))) }

// Error implements asynq.Logger.
func (l asynqLogger) Error(args ...any) { l.SugaredLogger.Error(plain.Text(fmt.Sprint(args...))) }

// Fatal implements asynq.Logger.
func (l asynqLogger) Fatal(args ...any) { l.SugaredLogger.Fatal(plain.Text(fmt.Sprint(args...))) }
