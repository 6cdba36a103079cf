package asynqlimit

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
)

// run calls the handler, in a slot.
func (j *job) run(ctx context.Context, next asynq.Handler) error {
	j.a.ask() // it has asked, or never will
	if err := j.slot(ctx); err != nil {
		return j.undecided(ctx, err)
	}
	if j.lease != nil && j.lease.Context().Err() != nil { // lost before it began
		return j.parkForSlot(j.needs.slots[0].Limiter)
	}
	if !j.calls(ctx) {
		return errGone
	}
	j.dryRunSlots()
	began, waited := time.Now(), j.waited
	j.handling, j.before = began, waited
	ended := errPanicked
	defer func() {
		j.ran(time.Since(began)-(j.waited-waited), ended)
	}()
	ctx, done := j.underLease(ctx)
	defer done()
	ended = next.ProcessTask(context.WithValue(ctx, jobKey{}, j), j.task)
	j.observe(ended)
	if ended != nil {
		return ended
	}
	j.l.logger.Debug("job done", "task_id", j.a.id, "type", j.task.Type(), "queue", j.a.queue,
		"wait", began.Sub(j.began), "took", time.Since(began))
	return nil
}

// competesFor is how long a task competes for a slot at most, and for no more than a quarter of its
// time. It came because slots are soon free. If none is by then, handlers run longer than before, and
// another process may have a slot for it.
const competesFor = 5 * time.Second

// compete waits for a slot, if the task came into the room for that: permits that it reserved now
// would be due before it has the slot. If it gets none, it goes back to its queue as it was.
func (j *job) compete(ctx context.Context) error {
	if !j.a.position.competing() {
		return nil
	}
	j.a.ask() // those behind it do not wait for it
	defer j.clock()()
	running, cancel := j.l.whileRunning(ctx)
	defer cancel()
	bounded, cancel := context.WithTimeout(running, min(competesFor, j.mayWait(ctx)))
	defer cancel()
	err := j.a.position.toSlot(bounded)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return j.undecided(ctx, err)
	}
	j.a.hasCompeted(j.a.position.waitsSince())
	j.a.decide(returns, j.a.untouched())
	return &ThrottledError{Err: err}
}

// slot waits for a slot, as long as the task may wait.
func (j *job) slot(ctx context.Context) error {
	if j.a.position.toSlotNow() {
		return nil
	}
	running, cancel := j.l.whileRunning(ctx)
	defer cancel()
	bounded, cancel := context.WithTimeout(running, j.mayWait(ctx))
	defer cancel()
	return j.a.position.toSlot(bounded)
}

// mayWait returns how much longer the task may wait, whatever it waits for. The task may wait for a quarter of the time that
// it had left when it began to wait, because asynq counts the wait against its timeout, and fails the attempt when the
// timeout is over. If a handler calls Hold or Acquire, it may wait for a quarter of the time that is left then. A task that
// was called, or came back, may in any case wait for what is due soon, but no longer than a quarter of the time that is left
// now. Without a deadline the task may wait practically for ever.
func (j *job) mayWait(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 10_000 * time.Hour
	}
	quarter := time.Until(deadline) / 4
	if j.waitsBy.IsZero() {
		j.waitsBy = time.Now().Add(quarter)
	}
	least := time.Duration(0)
	if j.a.wait.State.Near() {
		least = min(lead+slack, quarter)
	}
	return max(time.Until(j.waitsBy), least, 0)
}

// errGone is the result of an attempt that asynq ends, or has ended, because its context is over.
var errGone = errors.New("the attempt is over")

// calls reports whether to call the handler. If the handler acquires its permits itself, the task
// begins later: see Acquire.
func (j *job) calls(ctx context.Context) bool {
	if !j.held && len(j.limiter) > 0 {
		return ctx.Err() == nil && j.a.goesOn(prepares)
	}
	return j.begins(ctx)
}

// begins reports whether the task is to run now: Redis knows that it does not wait any more, and
// asynq still has it.
func (j *job) begins(ctx context.Context) bool {
	if !j.held { // else it has left the list
		j.l.rooms.of(j.a).leave(ctx, j.a)
	}
	if ctx.Err() != nil || !j.a.goesOn(runs) {
		return false
	}
	if j.needs.rule == nil {
		j.l.tellUnmatched(j.task.Type())
	}
	waited := j.a.wholeWait()
	j.counts().wholeWaits.add(waited)
	j.tally(func(t *tally) { t.start(waited) })
	j.dryRun()
	return true
}
