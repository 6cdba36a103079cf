package worker

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// TestLogLinesOfAsynq: asynq formats what it logs, ids and panics included,
// before any logger sees it. With the logger of any program, a line stays one.
func TestLogLinesOfAsynq(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "log: { level: warn }\n")
	var mu sync.Mutex
	var log bytes.Buffer
	f.log = zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()), zapcore.AddSync(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(p)
	})), zap.InfoLevel))
	const forged = "x\n2026-01-01T00:00:00.000Z\tINFO\tFORGED\x1b[2J\u202e"
	f.enqueue("x:panics", "panics", asynq.MaxRetry(0))
	f.work(func(context.Context, *asynq.Task) error { panic(forged) })
	f.enqueue("x:panics", "id"+forged, asynq.MaxRetry(0))
	f.awaitIdle("default", 2)
	f.awaitThat(5*time.Second, func() (bool, string) {
		mu.Lock()
		defer mu.Unlock()
		return strings.Count(log.String(), "panic") >= 2, log.String()
	})
	mu.Lock()
	defer mu.Unlock()
	for _, line := range strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n") {
		if fields := strings.Split(line, "\t"); len(fields) < 3 || fields[1] != "WARN" && fields[1] != "ERROR" || strings.Contains(line, "\x1b") {
			t.Errorf("not a line of the log: %q", line)
		}
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
