package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/plain"
)

const (
	// taskCheckInterval is how long asynq waits between looks at empty queues.
	// Its default of a second would let called tasks come late; less than this
	// would cost Redis more than it gains them.
	taskCheckInterval = 50 * time.Millisecond
	// delayedCheckInterval is how often asynq looks for tasks to retry.
	delayedCheckInterval = time.Second
)

// pool is a group of slots: an asynq server of its own. It calls handlers
// through the limits of their jobs.
type pool struct {
	w       *Worker
	weights map[string]int // of the queues, in the lines of parked tasks
	waiting chan struct{}  // slots that may wait: one token each
	server  *asynq.Server
}

func newPool(w *Worker, pc config.Pool) *pool {
	p := &pool{w: w, weights: lineWeights(pc), waiting: make(chan struct{}, pc.WaitingSlots())}
	p.server = asynq.NewServerFromRedisClient(sparing{w.rdb, w.spared, w.late.Done()}, asynq.Config{
		Concurrency:              pc.Concurrency,
		Queues:                   pc.QueueWeights(),
		StrictPriority:           pc.Strict,
		TaskCheckInterval:        taskCheckInterval,
		DelayedTaskCheckInterval: delayedCheckInterval,
		ShutdownTimeout:          time.Duration(w.cfg.ShutdownTimeout),
		IsFailure:                isFailure,
		RetryDelayFunc:           retryDelay,
		ErrorHandler:             asynq.ErrorHandlerFunc(p.ended),
		Logger:                   asynqLogger{w.logger.Named("asynq").With(zap.String("pool", pc.Name)).Sugar(), w.spared},
		LogLevel:                 asynq.WarnLevel,
	})
	return p
}

// ProcessTask is the one place where tasks meet their limits.
func (p *pool) ProcessTask(ctx context.Context, task *asynq.Task) error {
	p.w.spared.remove(taskKeyOf(ctx))
	ctx, span := p.w.startAttempt(ctx, task)
	err := p.counted(task.Type(), func() error { return p.attempt(ctx, task) })
	endSpan(span, err)
	return err
}

func (p *pool) attempt(ctx context.Context, task *asynq.Task) error {
	t := p.newTurn(ctx, task)
	unplanned := t.plan()
	if spent, err := p.exhausted(ctx, task); err != nil {
		t.leaveLine(ctx)
		return err
	} else if spent {
		t.leaveLine(ctx)
		return permanent(p.lastError(ctx))
	}
	return p.settle(ctx, t, p.planned(ctx, t, unplanned))
}

// planned processes the task if it can run. Unplanned is why it is not known
// what the task needs, or nil.
func (p *pool) planned(ctx context.Context, t *turn, unplanned error) error {
	defer t.leaveLine(ctx) // before it parks anew
	handler, pattern := p.w.mux.Handler(t.task)
	if pattern == "" {
		return handler.ProcessTask(ctx, t.task) // asynq's error for types without a handler
	}
	if unplanned != nil {
		return unplanned
	}
	return p.process(ctx, t, handler, p.w.acquires[pattern])
}

func (p *pool) process(ctx context.Context, t *turn, handler asynq.Handler, acquires bool) error {
	defer t.close()
	leave, err := t.takeInFlight(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if !acquires {
		if err := t.reserve(ctx); err != nil {
			return err
		}
		if err := t.wait(ctx); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := handler.ProcessTask(context.WithValue(ctx, turnKey{}, t), t.task); err != nil {
		return err
	}
	p.w.logger.Debug("job done", zap.String("task_id", t.entry.id), zap.String("type", t.task.Type()), zap.String("queue", t.entry.queue),
		zap.Duration("wait", began.Sub(t.began)), zap.Duration("took", time.Since(began)))
	return nil
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

// ended is called by asynq for each attempt that ended with an error, before it
// puts the task where that error belongs.
func (p *pool) ended(ctx context.Context, task *asynq.Task, err error) {
	if throttled, ok := errors.AsType[*ThrottledError](err); ok && asynqArchives(ctx) {
		p.w.spared.add(taskKeyOf(ctx), time.Now().Add(retryDelay(0, throttled, task)))
	}
	p.logFailure(ctx, task, err)
}

// logFailure logs what asynq counts as a failure, and only that: tasks that a
// limit puts off are what a throttle is for.
func (p *pool) logFailure(ctx context.Context, task *asynq.Task, err error) {
	if !isFailure(err) || errors.Is(err, asynq.RevokeTask) {
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

// lineWeights returns the weights that queues have in the lines of parked
// tasks. In a strict pool they are so far apart that a queue is called only when
// those above it are empty.
func lineWeights(pc config.Pool) map[string]int {
	queues := pc.QueueWeights()
	if !pc.Strict {
		return queues
	}
	ranks := slices.Compact(slices.Sorted(maps.Values(queues)))
	weights := make(map[string]int, len(queues))
	for name, weight := range queues {
		weights[name] = 1
		for range min(slices.Index(ranks, weight), 3) {
			weights[name] *= 1000
		}
	}
	return weights
}

// asynqLogger is asynq's log without what it says about tasks that it does not
// archive after all, one line each.
type asynqLogger struct {
	*zap.SugaredLogger
	spared *spared
}

func (l asynqLogger) Warn(args ...any) {
	line := fmt.Sprint(args...)
	if id, ok := strings.CutPrefix(line, "Retry exhausted for task id="); ok && l.spared.has(id) {
		return
	}
	l.SugaredLogger.Warn(plain.Text(line))
}
