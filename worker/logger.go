package worker

import (
	"context"
	"log/slog"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapHandler writes what is logged by log/slog to zap.
type zapHandler struct {
	core   zapcore.Core
	prefix string // of the group
}

var zapLevels = map[slog.Level]zapcore.Level{
	slog.LevelDebug: zap.DebugLevel, slog.LevelInfo: zap.InfoLevel, slog.LevelWarn: zap.WarnLevel, slog.LevelError: zap.ErrorLevel,
}

// Enabled implements slog.Handler.
func (h zapHandler) Enabled(_ context.Context, level slog.Level) bool {
	return h.core.Enabled(zapLevels[level])
}

// Handle implements slog.Handler.
func (h zapHandler) Handle(_ context.Context, r slog.Record) error {
	entry := zapcore.Entry{Level: zapLevels[r.Level], Time: r.Time, Message: r.Message}
	checked := h.core.Check(entry, nil)
	if checked == nil {
		return nil
	}
	fields := make([]zap.Field, 0, r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		fields = append(fields, h.field(a))
		return true
	})
	checked.Write(fields...)
	return nil
}

func (h zapHandler) field(a slog.Attr) zap.Field {
	key := h.prefix + a.Key
	switch v := a.Value.Resolve().Any().(type) {
	case error:
		return zap.NamedError(key, v)
	case time.Duration:
		return zap.Duration(key, v)
	case time.Time:
		return zap.Time(key, v)
	default:
		return zap.Any(key, v)
	}
}

// WithAttrs implements slog.Handler.
func (h zapHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	fields := make([]zap.Field, len(attrs))
	for i, a := range attrs {
		fields[i] = h.field(a)
	}
	h.core = h.core.With(fields)
	return h
}

// WithGroup implements slog.Handler.
func (h zapHandler) WithGroup(name string) slog.Handler {
	h.prefix += name + "."
	return h
}
