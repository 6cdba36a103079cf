package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/throttle"
)

const (
	// pullInterval is how often a worker looks for lines that are due, at the least:
	// it comes back sooner to one whose permits come due sooner.
	pullInterval = 100 * time.Millisecond
	// lead is how long before its permits come due a task is called: time to
	// get through asynq's queue and into a slot.
	lead = 200 * time.Millisecond
	// maxLook is the longest time between looks at a line, however far its turn
	// seems: a raised rate or an ended pause is noticed within it.
	maxLook = 400 * time.Millisecond
)

// puller brings parked tasks back when their permits come due. All workers
// share the lines; each line is looked at by one of them at a time.
type puller struct {
	lot       *lot
	throttle  *throttle.Client
	inspector *asynq.Inspector
	logger    *zap.Logger
}

// run pulls until ctx ends.
func (p *puller) run(ctx context.Context) {
	timer := time.NewTimer(pullInterval)
	defer timer.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		next, err := p.pull(ctx)
		timer.Reset(next)
		if err != nil && !failing && ctx.Err() == nil {
			p.logger.Warn("cannot bring parked tasks back; trying on", zap.Error(err))
		}
		failing = err != nil
	}
}

// pull looks at the lines that are due, and returns when to do so again.
func (p *puller) pull(ctx context.Context) (next time.Duration, err error) {
	next = pullInterval
	lines, err := p.lot.refresh(ctx)
	if err != nil {
		return next, fmt.Errorf("read the index of parked tasks: %w", err)
	}
	if lines == 0 {
		return next, nil
	}
	claims, err := p.lot.claims(ctx)
	if err != nil {
		return next, fmt.Errorf("claim lines of parked tasks: %w", err)
	}
	var errs []error
	for _, c := range claims {
		delay, err := p.look(ctx, c.limiter)
		if err == nil {
			err = p.lot.done(ctx, c, delay)
		}
		if err == nil && delay >= 0 {
			next = min(next, delay+time.Millisecond) // due by then, to the millisecond
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("limiter %q: %w", c.limiter, err))
		}
	}
	return next, errors.Join(errs...)
}

// look calls the tasks of a line whose permits come due, and returns when to
// look again: negative if nobody is in line.
func (p *puller) look(ctx context.Context, limiter string) (time.Duration, error) {
	budget, wait, err := p.budget(ctx, limiter)
	if err != nil {
		return 0, err
	}
	tasks, left, err := p.lot.next(ctx, limiter, budget)
	if err != nil {
		return 0, err
	}
	if err := p.bringAll(ctx, limiter, tasks); err != nil {
		return 0, err
	}
	if left == 0 {
		return -1, nil
	}
	switch {
	case wait > lead:
		return min(wait-lead, maxLook), nil
	case wait > 0: // more may come due at once than there are slots to wait for them ahead of it
		return min(wait, pullInterval/2), nil
	}
	return pullInterval / 2, nil
}

// budget is how many permits of the limiter come due within lead, and how long
// it takes until one does.
func (p *puller) budget(ctx context.Context, name string) (int64, time.Duration, error) {
	l, err := p.throttle.Limiter(name)
	if err != nil {
		return 0, 0, err
	}
	u, err := l.Inspect(ctx)
	if errors.Is(err, throttle.ErrNotInitialized) {
		return maxCalled, 0, nil // gone: the tasks will create it
	}
	if err != nil {
		return 0, 0, err
	}
	wait := max(u.NextFree, u.Paused)
	if wait > lead {
		return 0, wait, nil
	}
	due := float64(lead-wait) / float64(u.Rate.Interval) * float64(u.Rate.Permits)
	permits := max(u.Available, int64(due)+1)
	if u.Rate.Type == throttle.PerClient { // the figures are this worker's, the line is the fleet's
		permits *= int64(max(len(u.Clients), 1))
	}
	return permits, wait, nil
}

// bringAll moves called tasks to the front of their queues. A task that has
// parked just now may still be on its way out of its slot: those get a moment.
func (p *puller) bringAll(ctx context.Context, limiter string, tasks []string) error {
	for range 5 {
		var active []string
		pending := map[string][]any{}
		for _, name := range tasks {
			state, queue, id, err := p.bring(ctx, limiter, name)
			if err != nil {
				return err
			}
			switch state {
			case asynq.TaskStateActive:
				active = append(active, name)
			case asynq.TaskStateRetry, asynq.TaskStateScheduled:
				pending[queue] = append(pending[queue], id)
			}
		}
		for queue, ids := range pending {
			if err := p.lot.front(ctx, queue, ids); err != nil {
				return err
			}
		}
		if tasks = active; len(tasks) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil // brought back by asynq before their turn: in line again after a while, or done
}

// bring moves a called task to its queue, unless it is there or running, and
// returns the state that it found. One that is gone or done leaves the line.
func (p *puller) bring(ctx context.Context, limiter, name string) (state asynq.TaskState, queue, id string, err error) {
	if queue, id, err = parseEntry(name); err != nil {
		return 0, "", "", p.lot.forget(ctx, limiter, name)
	}
	info, err := p.inspector.GetTaskInfo(queue, id)
	if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) {
		return 0, "", "", p.lot.forget(ctx, limiter, name)
	}
	if err != nil {
		return 0, "", "", err
	}
	switch info.State {
	case asynq.TaskStatePending, asynq.TaskStateActive:
		return info.State, queue, id, nil // on its way
	case asynq.TaskStateRetry, asynq.TaskStateScheduled:
		// An error is a task that has moved on since, or comes by its fallback.
		if err := p.inspector.RunTask(queue, id); err != nil {
			p.logger.Debug("parked task moved on by itself", zap.String("queue", queue), zap.String("task_id", id), zap.Error(err))
		}
		return info.State, queue, id, nil
	}
	return info.State, "", "", p.lot.forget(ctx, limiter, name) // done or archived: RunTask would run it again
}
