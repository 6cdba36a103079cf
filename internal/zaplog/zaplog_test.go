package zaplog_test

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/jobthrottle/jobthrottle/internal/zaplog"
)

// TestNew: what is logged by log/slog is in zap as if it had been logged there.
func TestNew(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	log := zaplog.New(zap.New(core).Named("jobs").With(zap.String("pool", "slow")))
	log.Debug("too little")
	log.With("limit", "api").WithGroup("change").Warn("limit changed", "wait", 3*time.Second, "error", errors.New("no"), "pin", true)
	if logs.Len() != 1 {
		t.Fatalf("%d lines, want 1", logs.Len())
	}
	line := logs.All()[0]
	if line.Level != zap.WarnLevel || line.Message != "limit changed" || line.LoggerName != "jobs" || line.Time.IsZero() {
		t.Errorf("%+v", line.Entry)
	}
	got := line.ContextMap()
	for key, want := range map[string]any{"pool": "slow", "limit": "api", "change.wait": 3 * time.Second, "change.error": "no", "change.pin": true} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	if zaplog.New(nil) != nil {
		t.Error("there is a logger for none")
	}
}
