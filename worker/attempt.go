package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/producer"
)

// settleTimeout bounds what is noted in Redis when an attempt is over. The
// task's own time may be over by then.
const settleTimeout = 2 * time.Second

// exhausted says whether the task has failed as often as it may. asynq lets
// tasks of package producer have one attempt more than they asked for, because
// it archives what is put off on the last one: see producer.MaxRetryHeader.
func exhausted(ctx context.Context, task *asynq.Task) bool {
	most, ours := producer.MaxRetry(task.Headers())
	retried, _ := asynq.GetRetryCount(ctx)
	return ours && retried > most
}

// lastAttempt says whether the task may fail no more.
func lastAttempt(ctx context.Context, task *asynq.Task) bool {
	most, ours := producer.MaxRetry(task.Headers())
	if !ours {
		most, _ = asynq.GetMaxRetry(ctx)
	}
	retried, _ := asynq.GetRetryCount(ctx)
	return retried >= most
}

// asynqArchives says whether asynq archives the task whatever error the
// attempt returns, even one that is no failure.
func asynqArchives(ctx context.Context) bool {
	most, _ := asynq.GetMaxRetry(ctx)
	retried, _ := asynq.GetRetryCount(ctx)
	return retried >= most
}

// settle turns what a handler returned into what asynq has to know: tasks that
// were put off park, those that failed for the last time are archived.
func (p *pool) settle(ctx context.Context, t *turn, err error) error {
	if err == nil {
		return nil
	}
	if after, ok := errors.AsType[*RetryAfterError](err); ok {
		err = p.putOff(ctx, t, after)
	}
	throttled, ok := errors.AsType[*ThrottledError](err)
	if !ok {
		if lastAttempt(ctx, t.task) && !errors.Is(err, asynq.RevokeTask) {
			return permanent(err)
		}
		return err
	}
	e := t.entry
	limit := t.limitOf(throttled.Limiter)
	if limit != nil && throttled.Err == nil {
		limit.counts.denied.Add(1)
	}
	if throttled.parks {
		throttled.back = time.Now().Add(throttled.RetryAfter + fallback)
		e.back = throttled.back
	}
	if asynqArchives(ctx) {
		if e.id, err = p.copyTask(ctx, t, throttled); err != nil {
			return fmt.Errorf("on its last attempt, and it could not be copied: %w: %w", err, throttled)
		}
		err = fmt.Errorf("goes on as task %q: %w: %w", e.id, throttled, asynq.RevokeTask)
	}
	if throttled.parks {
		settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		defer cancel()
		if perr := p.w.lot.add(settling, &e, throttled.Limiter); perr != nil {
			p.w.logger.Warn("cannot park a task; asynq brings it back later",
				zap.String("task_id", e.id), zap.String("queue", e.queue), zap.String("limiter", throttled.Limiter), zap.Error(perr))
		} else if limit != nil {
			limit.counts.parked.Add(1)
		}
	}
	p.w.logger.Debug("put off", zap.String("task_id", e.id), zap.String("type", t.task.Type()), zap.String("queue", e.queue),
		zap.String("limiter", throttled.Limiter), zap.Duration("wait", throttled.RetryAfter))
	return err
}

// putOff pauses what the API's answer concerns and returns the error of a task
// that waits for the end of the pause.
func (p *pool) putOff(ctx context.Context, t *turn, after *RetryAfterError) error {
	pausing, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if err := t.pause(pausing, after.After); err != nil {
		p.w.logger.Warn("cannot pause a limit", zap.String("task_id", t.entry.id), zap.Error(err))
	}
	e := &ThrottledError{RetryAfter: after.After, Err: after}
	if t.job != nil {
		e.RetryAfter = min(after.After, t.job.maxPause)
		if len(t.job.pauses) > 0 {
			e.Limiter, e.parks = t.limiters[t.job.pauses[0]].Name(), true
		}
	}
	return e
}

// copyTask makes a task that goes on in place of one that asynq is about to
// archive because another producer gave it no attempt to spare. The copy has
// one attempt, as the original had, and an id that tells where it comes from.
// It has no unique lock: asynq cannot hand that over. While Redis does not
// answer, copyTask tries again until the task's time is over.
func (p *pool) copyTask(ctx context.Context, t *turn, throttled *ThrottledError) (id string, err error) {
	for {
		if id, err = p.tryCopyTask(ctx, t, throttled); err == nil {
			return id, nil
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-p.w.draining.Done():
			return "", err
		case <-time.After(time.Second):
		}
	}
}

func (p *pool) tryCopyTask(ctx context.Context, t *turn, throttled *ThrottledError) (id string, err error) {
	info, err := p.w.inspector.GetTaskInfo(t.entry.queue, t.entry.id)
	if err != nil {
		return "", err
	}
	headers := maps.Clone(t.task.Headers())
	if headers == nil {
		headers = map[string]string{}
	}
	headers[producer.MaxRetryHeader] = "0"
	id = t.entry.id + "~1"
	opts := []asynq.Option{
		asynq.TaskID(id), asynq.Queue(t.entry.queue), asynq.MaxRetry(1), asynq.Retention(info.Retention),
		asynq.ProcessIn(retryDelay(0, throttled, t.task)),
	}
	if info.Timeout > 0 {
		opts = append(opts, asynq.Timeout(info.Timeout))
	}
	if !info.Deadline.IsZero() {
		opts = append(opts, asynq.Deadline(info.Deadline))
	}
	_, err = p.w.client.EnqueueContext(ctx, asynq.NewTaskWithHeaders(t.task.Type(), t.task.Payload(), headers), opts...)
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		err = nil // an attempt before this one got so far, and its worker died
	}
	return id, err
}
