// Package zaplog lets code that logs with log/slog write to zap.
package zaplog

import (
	"context"
	"log/slog"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New returns a logger of log/slog that writes to a zap logger. It returns nil for nil.
func New(logger *zap.Logger) *slog.Logger {
	if logger == nil {
		return nil
	}
	return slog.New(handler{core: logger.Core(), name: logger.Name()})
}

// handler is a slog.Handler.
type handler struct {
	core   zapcore.Core
	name   string // of the logger
	prefix string // of the group
}

var levels = map[slog.Level]zapcore.Level{
	slog.LevelDebug: zap.DebugLevel, slog.LevelInfo: zap.InfoLevel, slog.LevelWarn: zap.WarnLevel, slog.LevelError: zap.ErrorLevel,
}

// Enabled implements slog.Handler.
func (h handler) Enabled(_ context.Context, level slog.Level) bool {
	return h.core.Enabled(levels[level])
}

// Handle implements slog.Handler.
func (h handler) Handle(_ context.Context, r slog.Record) error {
	entry := zapcore.Entry{Level: levels[r.Level], Time: r.Time, Message: r.Message, LoggerName: h.name}
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

func (h handler) field(a slog.Attr) zap.Field {
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
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	fields := make([]zap.Field, len(attrs))
	for i, a := range attrs {
		fields[i] = h.field(a)
	}
	h.core = h.core.With(fields)
	return h
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler {
	h.prefix += name + "."
	return h
}
