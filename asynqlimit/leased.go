package asynqlimit

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// leased is the context of a handler that runs in slots: it ends with their lease, and its Err
// compares the clock.
type leased struct {
	context.Context
	lease context.Context
}

// Err is nil as long as the slots certainly belong to the job.
func (c leased) Err() error {
	if err := c.lease.Err(); err != nil && c.Context.Err() == nil {
		return err
	}
	return c.Context.Err()
}

// underLease returns the context for the handler, and what to call when the handler returns.
func (j *job) underLease(ctx context.Context) (context.Context, func()) {
	if j.lease == nil {
		return ctx, func() {}
	}
	lease := j.lease.Context()
	running, cancel := context.WithCancelCause(ctx)
	var lost atomic.Pointer[time.Time]
	stop := context.AfterFunc(lease, func() {
		cause := context.Cause(lease)
		if errors.Is(cause, throttle.ErrReleased) {
			cancel(cause)
			return
		}
		now := time.Now()
		lost.Store(&now)
		j.eachSlot(func(c *slotCounts) { c.lost.Add(1) })
		cancel(cause)
		j.l.logger.Warn("a running job has lost its slot: its handler's context is over", "limit", j.needs.slots[0].Limiter,
			"task_id", j.a.id, "type", j.task.Type(), "queue", j.a.queue, "error", cause)
	})
	return leased{running, lease}, func() {
		stop()
		cancel(nil)
		at := lost.Load()
		if at == nil {
			return
		}
		if over := time.Since(*at) - j.shortestLease()/20; over > 0 {
			j.eachSlot(func(c *slotCounts) { c.outlived.Add(1) })
			j.l.logger.Warn("a handler ran on after its lease: another job may have run beside it", "limit", j.needs.slots[0].Limiter,
				"beyond", over, "task_id", j.a.id, "type", j.task.Type(), "queue", j.a.queue)
		}
	}
}

func (j *job) eachSlot(f func(*slotCounts)) {
	for _, s := range j.needs.slots {
		f(&j.l.rules.slots[s.Limit].counts)
	}
}

// shortestLease is the shortest lease among the job's limits in flight.
func (j *job) shortestLease() time.Duration {
	least := throttle.MaxLease
	for _, s := range j.needs.slots {
		lease := s.Limit.Slots.Lease
		if lease == 0 {
			lease = throttle.DefaultLease
		}
		least = min(least, lease)
	}
	return least
}
