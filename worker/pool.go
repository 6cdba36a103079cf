package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/plain"
	"github.com/jobthrottle/jobthrottle/internal/zaplog"
)

// delayedCheckInterval is how often asynq looks for tasks to retry.
const delayedCheckInterval = time.Second

// pool is a group of slots: an asynq server of its own, with limits.
type pool struct {
	w      *Worker
	name   string
	limits *asynqlimit.Limits
	server *asynq.Server
}

// newPools returns the pools of the configuration. What they share is in the first.
func newPools(w *Worker) ([]*pool, error) {
	var pools []*pool
	for i, pc := range w.cfg.Pools {
		p := &pool{w: w, name: pc.Name}
		opts := asynqlimit.Options{
			Logger:          zaplog.New(w.logger),
			Concurrency:     pc.Concurrency,
			MaxWaiting:      pc.WaitingSlots(),
			HandlersAcquire: []string{HTTPTaskType},
			Throttle:        w.throttle,
			Attempt:         p.attempted,
			Trace:           w.traceAcquire,
		}
		if i == 0 {
			var err error
			if p.limits, err = asynqlimit.New(w.rdb, w.cfg, opts); err != nil {
				return nil, err
			}
		} else {
			p.limits = pools[0].limits.Another(opts)
		}
		p.server = asynq.NewServerFromRedisClient(p.limits.Redis(), p.limits.Configure(p.asynq(pc)))
		pools = append(pools, p)
	}
	return pools, nil
}

// asynq is the configuration of the pool's server.
func (p *pool) asynq(pc config.Pool) asynq.Config {
	return asynq.Config{
		Concurrency:              pc.Concurrency,
		Queues:                   pc.QueueWeights(),
		StrictPriority:           pc.Strict,
		DelayedTaskCheckInterval: delayedCheckInterval,
		ShutdownTimeout:          time.Duration(p.w.cfg.ShutdownTimeout),
		RetryDelayFunc:           retryDelay,
		ErrorHandler:             asynq.ErrorHandlerFunc(p.logFailure),
		Logger:                   asynqLogger{p.w.logger.Named("asynq").With(zap.String("pool", pc.Name)).Sugar()},
		LogLevel:                 asynq.WarnLevel,
	}
}

// attempted wraps each attempt of a job: its span, and what is true of jobs of
// package producer alone.
func (p *pool) attempted(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) (err error) {
		ctx, span := p.w.startAttempt(ctx, task)
		defer func() { endSpan(span, err) }()
		if spent, err := p.exhausted(ctx, task); err != nil {
			return err
		} else if spent {
			return permanent(p.lastError(ctx))
		}
		err = next.ProcessTask(ctx, task)
		if _, throttled := errors.AsType[*ThrottledError](err); err == nil || throttled {
			return err
		}
		if lastAttempt(ctx, task) && !errors.Is(err, asynq.RevokeTask) {
			return permanent(err)
		}
		return err
	})
}

// lastError is what the last attempt ended with: a panic or a timeout, which
// asynq handles without asking whether it was the last.
func (p *pool) lastError(ctx context.Context) error {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	info, err := p.w.inspector.GetTaskInfo(queue, id)
	if err != nil {
		return fmt.Errorf("all its retries are used up, and what the last ended with is unknown: %w", err)
	}
	return errors.New(info.LastErr)
}

// logFailure logs what asynq counts as a failure.
func (p *pool) logFailure(ctx context.Context, task *asynq.Task, err error) {
	if errors.Is(err, asynq.RevokeTask) {
		return
	}
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	retried, _ := asynq.GetRetryCount(ctx)
	log := p.w.logger.Warn
	if errors.Is(err, asynq.SkipRetry) {
		log = p.w.logger.Error
	}
	log("job failed", zap.String("task_id", id), zap.String("type", task.Type()), zap.String("queue", queue),
		zap.Int("retried", retried), zap.Bool("archived", errors.Is(err, asynq.SkipRetry)), zap.Error(err))
}

// asynqLogger is asynq's log. asynq writes ids and errors of tasks into its
// messages, where no logger escapes them: one message is one line, of plain text.
type asynqLogger struct{ *zap.SugaredLogger }

func (l asynqLogger) Debug(args ...any) { l.SugaredLogger.Debug(plain.Text(fmt.Sprint(args...))) }
func (l asynqLogger) Info(args ...any)  { l.SugaredLogger.Info(plain.Text(fmt.Sprint(args...))) }
func (l asynqLogger) Warn(args ...any)  { l.SugaredLogger.Warn(plain.Text(fmt.Sprint(args...))) }
func (l asynqLogger) Error(args ...any) { l.SugaredLogger.Error(plain.Text(fmt.Sprint(args...))) }
func (l asynqLogger) Fatal(args ...any) { l.SugaredLogger.Fatal(plain.Text(fmt.Sprint(args...))) }
