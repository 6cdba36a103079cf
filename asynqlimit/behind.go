package asynqlimit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// A task that asks for slots does not overtake those that are in line for them: it queues behind them. Only those that were called
// from there, or whose process ended, do not queue. Nor do those whose permits are due, if all others in that line came later. And
// if the time is over for which a task waits here, the last of those that do goes to the line.

// queuesForSlots reports whether the task queues behind those that are in line for slots.
func (j *job) queuesForSlots() bool {
	_, forSlots := line.SlotLimit(j.a.wait.Line)
	return j.a.wait.State != line.Back && (j.a.wait.State != line.Called || !forSlots)
}

// queuesFor reports whether the task, which came at since, queues behind those in a line for slots or for max_in_flight. One that
// was called from another line has others of its own line before it in this one: it queues behind those that came earlier.
func (j *job) queuesFor(ctx context.Context, name string, since int64) (bool, error) {
	if j.a.wait.State != line.Called {
		return j.l.caller.queuesFor(j.a.queue, name), nil
	}
	if !j.l.caller.lined(j.a.queue, name) {
		return false, nil
	}
	heads, _, err := j.l.lines.Heads(ctx, j.a.queue, []string{name})
	if err != nil {
		return false, err
	}
	first := heads[0]
	return first.Tasks > 0 && !first.Since.IsZero() && first.Since.UnixMicro() < since, nil
}

// earlierFor returns the limiter in whose line others wait that came before a task that was called for a slot, or "" if there is none.
// Some of these may have lost permits for want of a slot. As long as tasks that are called for slots reserve what is due next, nothing
// is left for them.
func (j *job) earlierFor(ctx context.Context) (string, error) {
	if err := j.l.caller.askFor(ctx, j.a.queue, j.needs.lines); err != nil {
		return "", err
	}
	for i, name := range j.needs.lines {
		if queues, err := j.queuesFor(ctx, name, j.a.since); err != nil || queues {
			return j.needs.limiters[i], err
		}
	}
	return "", nil
}

// calledForSlot reports whether the task was called from the line of a limit in flight or for max_in_flight.
func (j *job) calledForSlot() bool {
	return j.a.wait.State == line.Called && line.IsWait(j.a.wait.Line)
}

// hadNoPermits parks a task that had its slots several times, but no permits in time. If these are due soon, it waits for its slots,
// where it comes before those that came later. In the line for permits it would come behind all that have slots meanwhile.
func (j *job) hadNoPermits(late *ThrottledError) error {
	if late.RetryAfter > backIn || j.keepsOrder() {
		return late
	}
	parked := j.parkForSlot(j.needs.slots[0].Limiter)
	parked.Err = fmt.Errorf("it had its slots, but no permits of %q in time", late.Limiter)
	return parked
}

// slotLines are the lines in which the task waits for slots of its limits in flight.
func (j *job) slotLines() []string {
	names := make([]string, len(j.needs.slots))
	for i, s := range j.needs.slots {
		names[i] = line.InFlight + s.Limiter
	}
	return names
}

// slotWaiter is a task that waits here for slots or for max_in_flight, until its time is over.
type slotWaiter struct {
	since int64     // where it stands
	until time.Time // when it leaves
	most  time.Time // when it leaves at the latest
	over  *time.Timer
	leave func()
}

// waitsHere calls leave when a task has waited for that long, at most most. If another waits here for the same and came later,
// that one leaves in its stead, and it has the other's time. stop ends that.
func (c *caller) waitsHere(key probeKey, since int64, wait, most time.Duration, leave func()) (stop func()) {
	now := time.Now()
	w := &slotWaiter{since: since, until: now.Add(wait), most: now.Add(most), leave: leave}
	c.mu.Lock()
	defer c.mu.Unlock()
	w.over = time.AfterFunc(wait, func() { c.lastLeaves(key, w) })
	c.waiters[key] = append(c.waiters[key], w)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.leaves(key, w)
	}
}

// isFirst reports whether nobody else waits here for the same who came earlier than since.
func (c *caller) isFirst(key probeKey, since int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(c.waiters[key], func(w *slotWaiter) bool { return w.since < since })
}

// keepsPermits reports whether the task keeps permits that it has reserved, for a while, although there is no slot for it. Others
// would have them meanwhile. But if it has had slots without permits here, or later tasks have overtaken it, it has had one without
// the other before: where others take both as soon as they are free, it would go on so. Only the first of those that wait here for
// the slots keeps its permits, and for no longer than keepsFor. Permits that are too old by then are exchanged.
func (j *job) keepsPermits(waiters probeKey, since int64) bool {
	return !j.needs.rule.never && j.l.caller.isFirst(waiters, since) && (j.hadSlots || j.l.caller.overtaken(j.a, j.needs.limiters))
}

// keepsFor is half of an interval, or lead if that is longer, but no longer than an interval and its guard.
func (j *job) keepsFor() time.Duration {
	half := j.halfInterval()
	return min(max(half, lead), 2*half)
}

// lastLeaves makes the last of those leave who wait for the same slots as w, whose time is over.
func (c *caller) lastLeaves(key probeKey, w *slotWaiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.waiters[key], w) {
		return
	}
	last, now := w, time.Now()
	for _, other := range c.waiters[key] {
		if other.since > last.since && now.Before(w.most) {
			last = other
		}
	}
	if last != w {
		w.until = last.until
		if w.most.Before(w.until) {
			w.until = w.most
		}
		w.over.Reset(time.Until(w.until))
	}
	c.leaves(key, last)
	last.leave()
}

// leaves notes that w does not wait any more. Whoever calls it has locked c.
func (c *caller) leaves(key probeKey, w *slotWaiter) {
	w.over.Stop()
	c.waiters[key] = slices.DeleteFunc(c.waiters[key], func(other *slotWaiter) bool { return other == w })
	if len(c.waiters[key]) == 0 {
		delete(c.waiters, key)
	}
}
