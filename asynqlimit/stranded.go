package asynqlimit

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// A task is stranded if it only waited and its lease is over, because Redis was away: asynq does not end
// its attempt any more, and leaves the task to its recoverer, which comes a minute later. So the caller parks it
// or gives it back when Redis answers again, unless somebody else has done so by then.

// endStranded does so for those tasks, until Redis gives no answer.
func (c *caller) endStranded(ctx context.Context, stranded []*attempt) {
	for _, a := range stranded {
		f, parking := a.ending(line.Retry)
		c.l.rooms.of(a).stay(ctx, a)
		if err := c.l.putOff(ctx, a, f, nil, parking); err != nil && !errors.Is(err, line.ErrNotActive) {
			c.l.logger.Debug("cannot put back a job whose lease is over; trying on", "task_id", a.id, "queue", a.queue, "error", err)
			return
		}
		a.note()
		c.l.attempts.drop(a)
	}
}

// putOff parks the task of an attempt, or gives it back to its queue.
func (l *Limits) putOff(ctx context.Context, a *attempt, f fate, message any, parking line.Parking) error {
	if f == returns {
		l.attempts.wentBack(a)
		return l.lines.GiveBack(ctx, a.queue, a.id, parking)
	}
	err := l.lines.Park(ctx, a.queue, line.ToPark{ID: a.id, Message: message, How: parking})
	if err == nil {
		l.caller.parked(a.queue, parking)
	}
	return err
}

// goesOnWaiting reports whether the task of a context goes on waiting if asynq ends its attempt: then
// nothing has failed.
func (l *Limits) goesOnWaiting(ctx context.Context) bool {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	a := l.attempts.get(queue, id)
	if a == nil {
		return false
	}
	f, _ := a.ending(line.Retry)
	return f == parks || f == returns
}
