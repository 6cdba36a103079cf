package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/internal/zaplog"
)

// Options are what a worker may have in addition to its configuration: what [asynq.Config] offers
// to an [asynq.Server]. The zero value is ready for use. They apply to all pools.
type Options struct {
	// Redis is the client to use. The caller still has to close it: see NewWithClient. Defaults
	// to a client of the worker's own, from the configuration.
	Redis redis.UniversalClient
	// Slog or Zap is the worker's log. At most one of them may be set. Defaults to
	// slog.Default().
	Slog *slog.Logger
	Zap  *zap.Logger
	// Handler gets the tasks that have no handler from Handle or HandleFunc. It may be the
	// *asynq.ServeMux of a program that used to run an asynq.Server. The mux then gets all
	// types for which it has a handler, including http:request. Types that have no handler
	// anywhere wait. Any other handler gets all tasks of other types.
	Handler asynq.Handler
	// ErrorHandler is called for each failure of a task, as by asynq, in addition to the log. A
	// task that waits has not failed.
	ErrorHandler asynq.ErrorHandler
	// IsFailure says which errors of handlers are failures and use up a retry. Defaults to all.
	IsFailure func(error) bool
	// RetryDelay is when a task that failed comes back. Defaults to asynq's.
	RetryDelay asynq.RetryDelayFunc
	// BaseContext returns the context from which the contexts of handlers derive. Defaults to
	// context.Background.
	BaseContext func() context.Context
	// HealthCheck is called regularly by each pool, with the error of a ping to Redis, or nil.
	HealthCheck func(error)
	// GroupAggregator makes one task of several that were enqueued with asynq.Group, at most
	// GroupMaxSize (0: any number). If it is nil, groups stay as they are.
	GroupAggregator asynq.GroupAggregator
	GroupMaxSize    int
	// JanitorBatchSize is how many tasks whose retention is over are deleted in one call to Redis.
	// Defaults to asynq's 100.
	JanitorBatchSize int
	// LogLevel is the lowest level of asynq's own log that gets into the worker's. Defaults to
	// asynq.WarnLevel.
	LogLevel asynq.LogLevel
	// Intervals are how often the worker does asynq's periodic work.
	Intervals Intervals
}

// Intervals are how often a worker does asynq's periodic work, and how long groups of tasks may
// take. Zero means the default.
type Intervals struct {
	TaskCheck        time.Duration // polls queues that were empty; 50ms
	DelayedTaskCheck time.Duration // brings scheduled tasks and retries to their queues; 1s
	HealthCheck      time.Duration // calls HealthCheck; 15s
	Janitor          time.Duration // deletes completed tasks whose retention is over; 8s
	GroupGracePeriod time.Duration // a group waits this long for one more task; 1m
	GroupMaxDelay    time.Duration // a group waits this long in all; without end
}

// logger returns where to log.
func (o Options) logger() (*slog.Logger, error) {
	switch {
	case o.Slog != nil && o.Zap != nil:
		return nil, errors.New("worker: want one of Options.Slog and Options.Zap")
	case o.Zap != nil:
		return zaplog.New(o.Zap), nil
	case o.Slog != nil:
		return o.Slog, nil
	}
	return slog.Default(), nil
}

// asynqLog is where asynq's own log goes.
func (o Options) asynqLog(logger *slog.Logger) *slog.Logger {
	if o.Zap != nil {
		return zaplog.New(o.Zap.Named("asynq"))
	}
	return logger.With("from", "asynq")
}
