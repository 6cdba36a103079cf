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
	if asynqArchives(ctx) {
		if e.id, err = p.copyTask(ctx, t, throttled); err != nil {
			return fmt.Errorf("on its last attempt, and it could not be copied: %w: %w", err, throttled)
		}
		err = fmt.Errorf("goes on as task %q: %w: %w", e.id, throttled, asynq.RevokeTask)
	}
	if throttled.parks {
		throttled.back = time.Now().Add(throttled.RetryAfter + fallback)
		e.back = throttled.back
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

// putOff does what the API's answer asks for, and returns the error of a task
// that waits. The task's first refusal pauses what it concerns: the API means
// everybody. If the task is refused again, and no other was meanwhile, the API
// means this task: it alone stays away, and then queues behind the others.
func (p *pool) putOff(ctx context.Context, t *turn, after *RetryAfterError) error {
	e := &ThrottledError{RetryAfter: after.After, Err: after}
	if t.job == nil {
		return e.alone()
	}
	e.RetryAfter = min(after.After, t.job.maxPause)
	if len(t.job.pauses) == 0 {
		return e.alone()
	}
	e.Limiter = t.limiters[t.job.pauses[0]].Name()
	pausing, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	r, err := p.w.refusals.of(pausing, &t.entry, e.Limiter, max(time.Hour, 2*t.job.maxPause))
	if err != nil {
		p.w.logger.Warn("cannot note that a task was refused", zap.String("task_id", t.entry.id), zap.Error(err))
	}
	if r.alone() {
		e.RetryAfter = r.stayAway(after.After, t.job.maxPause)
		return e.alone()
	}
	if err := t.pause(pausing, after.After); err != nil {
		p.w.logger.Warn("cannot pause a limit", zap.String("task_id", t.entry.id), zap.Error(err))
	}
	if r.times > 1 {
		t.entry.limiter, t.entry.place = "", "" // behind the others
	}
	e.parks = true
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
