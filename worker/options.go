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

// Options are what a worker may have beside its configuration: what asynq.Config
// offers to an asynq.Server. The zero value is ready for use. They hold for all pools.
type Options struct {
	// Redis is the client to use, which remains the caller's to close: see
	// NewWithClient. Defaults to one of the worker's own, by the configuration.
	Redis redis.UniversalClient
	// Slog or Zap is where the worker logs: one of them at most.
	// Defaults to slog.Default().
	Slog *slog.Logger
	Zap  *zap.Logger
	// Handler gets the tasks that no handler of Handle or HandleFunc is for. It may be
	// the *asynq.ServeMux of a program that runs an asynq.Server today: types that
	// the mux has a handler for are its own, http:request included, and types that
	// nobody has a handler for wait.
	// Any other handler gets all tasks of other types.
	Handler asynq.Handler
	// ErrorHandler is told of each failure of a task, as asynq has it, beside the
	// log. That a task waits is none.
	ErrorHandler asynq.ErrorHandler
	// IsFailure says which errors of handlers count as failures and use up a retry.
	// Defaults to all.
	IsFailure func(error) bool
	// RetryDelay is when a task that failed comes back. Defaults to asynq's.
	RetryDelay asynq.RetryDelayFunc
	// BaseContext is what the contexts of handlers derive from. Defaults to
	// context.Background.
	BaseContext func() context.Context
	// HealthCheck is called every now and then with the error of a ping to Redis, or
	// nil, by each pool.
	HealthCheck func(error)
	// GroupAggregator makes one task of several that were enqueued with asynq.Group,
	// at most GroupMaxSize (0: any number). A nil one leaves groups alone.
	GroupAggregator asynq.GroupAggregator
	GroupMaxSize    int
	// Intervals are how often the worker does what asynq does now and then.
	Intervals Intervals
}

// Intervals are how often a worker does what asynq does now and then, and how long
// groups of tasks may take. Zero is the default.
type Intervals struct {
	TaskCheck        time.Duration // looks at queues that were empty; 50ms
	DelayedTaskCheck time.Duration // brings scheduled tasks and retries to their queues; 1s
	HealthCheck      time.Duration // calls HealthCheck; 15s
	Janitor          time.Duration // deletes completed tasks whose retention is over; 8s
	GroupGracePeriod time.Duration // a group waits for one more task; 1m
	GroupMaxDelay    time.Duration // a group waits in all; without end
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
