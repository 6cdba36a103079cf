package worker

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// takeInFlight gets one of the places of a job with max_in_flight, which leave gives
// back. Waiting for it is like waiting for a permit, except that there is no
// line to park in: asynq brings the task back after a while. One that a limiter
// called keeps its place in line meanwhile, but not the permits that come due.
func (t *turn) takeInFlight(ctx context.Context) (leave func(), err error) {
	if t.job == nil || t.job.inFlight == nil {
		return func() {}, nil
	}
	leave = func() { <-t.job.inFlight }
	select {
	case t.job.inFlight <- struct{}{}:
		return leave, nil
	default:
	}
	timer := time.NewTimer(t.maxWait(ctx)) // as one that was not called: that wait is for permits
	defer timer.Stop()
	running, cancel := t.pool.w.whileRunning(ctx)
	defer cancel()
	if _, _, err := t.pool.w.lot.arrive(running, &t.entry, t.limiterNames()); err != nil {
		return nil, t.refusal(ctx, err)
	}
	t.arrived = true
	if !t.takeWaitingSlot() {
		return nil, t.full(ctx)
	}
	defer t.close()
	select {
	case t.job.inFlight <- struct{}{}:
		return leave, nil
	case <-timer.C:
	case <-running.Done():
	}
	return nil, t.full(ctx)
}

// full returns the error of a task that finds max_in_flight reached.
func (t *turn) full(ctx context.Context) error {
	if e := &t.entry; e.limiter != "" {
		e.back = time.Now().Add(retryFull)
		settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		defer cancel()
		if err := t.pool.w.lot.setAside(settling, e); err != nil {
			t.pool.w.logger.Warn("cannot keep a task's place in line; it queues behind the others",
				zap.String("task_id", e.id), zap.String("queue", e.queue), zap.String("limiter", e.limiter), zap.Error(err))
		}
	}
	return &ThrottledError{RetryAfter: retryFull, Err: fmt.Errorf("max_in_flight of %q is reached", t.job.Name)}
}
