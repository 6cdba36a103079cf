package worker

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/producer"
)

// settleTimeout bounds what is noted in Redis when an attempt is over. The
// task's own time may be over by then.
const settleTimeout = 2 * time.Second

//go:embed lua/ranout.lua
var ranOutLua string

// undecidedTries is how often an attempt asks Redis whether the task is to be archived.
const undecidedTries = 10

// exhausted says whether the task has failed as often as it may, and asynq has
// to archive it. asynq lets tasks of package producer have one attempt more than
// they asked for: see producer.MaxRetryHeader. It is so once: who brings an
// archived task back wants it run.
func (p *pool) exhausted(ctx context.Context, task *asynq.Task) (bool, error) {
	most, ours := producer.MaxRetry(task.Headers())
	retried, _ := asynq.GetRetryCount(ctx)
	if !ours || retried <= most {
		return false, nil
	}
	// The answer may get lost. The same attempt gets the same one again, so that it
	// goes on asking: a later attempt would be told to run.
	attempt := rand.Text()
	for try := 1; ; try++ {
		first, err := p.w.ranOut.Run(ctx, p.w.rdb, []string{taskKeyOf(ctx)}, attempt).Bool()
		if err == nil {
			return first, nil
		}
		undecided := &ThrottledError{RetryAfter: retryUndecided, Err: err}
		if try == undecidedTries {
			return false, undecided
		}
		select {
		case <-ctx.Done():
			return false, undecided
		case <-p.w.late.Done():
			return false, undecided
		case <-time.After(retryUndecided):
		}
	}
}

// taskKeyOf is where asynq has the task that ctx belongs to.
func taskKeyOf(ctx context.Context) string {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	return taskKey(queue, id)
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
// were put off park, those that cannot run as things stand wait, those that
// failed for the last time are archived.
func (p *pool) settle(ctx context.Context, t *turn, err error) error {
	if err == nil {
		return nil
	}
	if after, ok := errors.AsType[*RetryAfterError](err); ok {
		err = p.putOff(ctx, t, after)
	}
	if blocked := asBlocked(err); blocked != nil {
		err = p.block(t, blocked)
	}
	throttled, ok := errors.AsType[*ThrottledError](err)
	if !ok {
		if lastAttempt(ctx, t.task) && !errors.Is(err, asynq.RevokeTask) {
			return permanent(err)
		}
		return err
	}
	e := t.entry
	draw, drawn := t.drawOn(throttled.Limiter)
	if drawn && throttled.Err == nil {
		t.counts(draw).denied.Add(1)
	}
	if throttled.parks {
		throttled.back = time.Now().Add(throttled.RetryAfter + fallback)
		e.back = throttled.back
		settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		defer cancel()
		if perr := p.w.lot.add(settling, &e, throttled.Limiter); perr != nil {
			p.w.logger.Warn("cannot park a task; asynq brings it back later",
				zap.String("task_id", e.id), zap.String("queue", e.queue), zap.String("limiter", throttled.Limiter), zap.Error(perr))
		} else if drawn {
			t.counts(draw).parked.Add(1)
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
	e.RetryAfter = min(after.After, t.job.MaxPause)
	first := slices.IndexFunc(t.draws, func(d plan.Draw) bool { return d.Pauses })
	if first < 0 {
		return e.alone()
	}
	e.Limiter = t.draws[first].Limiter
	pausing, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	r, err := p.w.refusals.of(pausing, &t.entry, e.Limiter, max(time.Hour, 2*t.job.MaxPause))
	if err != nil {
		p.w.logger.Warn("cannot note that a task was refused", zap.String("task_id", t.entry.id), zap.Error(err))
	}
	if r.alone() {
		e.RetryAfter = r.stayAway(after.After, t.job.MaxPause)
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
