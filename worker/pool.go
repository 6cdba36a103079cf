package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/config"
)

// delayedCheckInterval is how often asynq checks for tasks to retry.
const delayedCheckInterval = time.Second

// pool is a group of slots: an asynq server of its own, with limits.
type pool struct {
	w      *Worker
	name   string
	limits *asynqlimit.Limits
	server *asynq.Server
}

// newPools returns the pools of the configuration. The first has what they share.
func newPools(w *Worker) ([]*pool, error) {
	var pools []*pool
	for i, pc := range w.cfg.Pools {
		p := &pool{w: w, name: pc.Name}
		opts := asynqlimit.Options{
			Name:            pc.Name,
			Logger:          w.logger,
			Concurrency:     pc.Concurrency,
			MaxWaiting:      pc.MaxWaiting,
			HandlersAcquire: []string{HTTPTaskType},
			Asks:            w.http.sends,
			HandlerPatterns: w.handlers.patterns(),
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
	o := p.w.opts
	return asynq.Config{
		Concurrency:              pc.Concurrency,
		Queues:                   pc.QueueWeights(),
		StrictPriority:           pc.Strict,
		BaseContext:              o.BaseContext,
		TaskCheckInterval:        o.Intervals.TaskCheck,
		DelayedTaskCheckInterval: cmp.Or(o.Intervals.DelayedTaskCheck, delayedCheckInterval),
		ShutdownTimeout:          time.Duration(p.w.cfg.ShutdownTimeout),
		IsFailure:                o.IsFailure,
		RetryDelayFunc:           retryDelay(o.RetryDelay),
		ErrorHandler:             asynq.ErrorHandlerFunc(p.failed),
		HealthCheckFunc:          o.HealthCheck,
		HealthCheckInterval:      o.Intervals.HealthCheck,
		JanitorInterval:          o.Intervals.Janitor,
		JanitorBatchSize:         o.JanitorBatchSize,
		GroupAggregator:          o.GroupAggregator,
		GroupMaxSize:             o.GroupMaxSize,
		GroupGracePeriod:         o.Intervals.GroupGracePeriod,
		GroupMaxDelay:            o.Intervals.GroupMaxDelay,
		Logger:                   newAsynqLogger(o.asynqLog(p.w.logger).With("pool", pc.Name)),
		LogLevel:                 cmp.Or(o.LogLevel, asynq.WarnLevel),
	}
}

// attempted wraps each attempt of a job. It adds the span, and enforces the number of retries
// of jobs that earlier versions of package producer enqueued.
func (p *pool) attempted(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) (err error) {
		ctx, span := p.w.startAttempt(ctx, task)
		defer func() { endSpan(span, err) }()
		if exhausted, err := p.exhausted(ctx, task); err != nil {
			return err
		} else if exhausted {
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

// lastError is the error of the last attempt: a panic or a timeout, which asynq handles without
// asking whether it was the last.
func (p *pool) lastError(ctx context.Context) error {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	info, err := p.w.inspector.GetTaskInfo(queue, id)
	if err != nil {
		return fmt.Errorf("all its retries are used up, and what the last ended with is unknown: %w", err)
	}
	return errors.New(info.LastErr)
}

// failed logs each failure that asynq counts, and passes it on.
func (p *pool) failed(ctx context.Context, task *asynq.Task, err error) {
	if !errors.Is(err, asynq.RevokeTask) {
		id, _ := asynq.GetTaskID(ctx)
		queue, _ := asynq.GetQueueName(ctx)
		retried, _ := asynq.GetRetryCount(ctx)
		archived, level := errors.Is(err, asynq.SkipRetry), slog.LevelWarn
		if archived {
			level = slog.LevelError
		}
		p.w.logger.Log(ctx, level, "job failed", "task_id", id, "type", task.Type(), "queue", queue, "retried", retried, "archived", archived, "error", err)
	}
	if p.w.opts.ErrorHandler != nil {
		p.w.opts.ErrorHandler.HandleError(ctx, task, err)
	}
}
