package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// turn is one attempt of one task to get its permits.
//
// The worker reserves and waits before it calls a handler, except for handlers
// that do it themselves: those call reserve as their first act, prepare what
// they can, and call wait immediately before they use the permits. Both are
// no-ops for a task without limits. What is reserved and not waited for goes
// back when the handler returns.
type turn struct {
	pool     *pool
	job      *job // nil if no pattern of the configuration matches
	task     *asynq.Task
	entry    entry               // the task as the lot knows it
	draws    []plan.Draw         // what the task acquires, together
	limiters []*throttle.Limiter // of draws
	arrived  bool                // the lines of the limiters know that it is here, if one called it

	began       time.Time
	reservation *throttle.Reservation
	span        trace.Span    // of reserve and wait
	waited      time.Duration // in reserve and wait, until now
	taken       int64         // permits of each limiter, until now
	waiting     bool          // holds one of the pool's waiting slots
}

type turnKey struct{}

// slack is what a wait may take beyond its place: the next one, if the place was stale.
const slack = 200 * time.Millisecond

// turnFrom returns the turn of the task that ctx belongs to. It is never nil
// within a handler that the worker calls.
func turnFrom(ctx context.Context) *turn {
	t, _ := ctx.Value(turnKey{}).(*turn)
	return t
}

// newTurn returns the turn of a task whose job and limits are not known yet: see plan.
func (p *pool) newTurn(ctx context.Context, task *asynq.Task) *turn {
	t := &turn{pool: p, task: task, began: time.Now()}
	t.entry.id, _ = asynq.GetTaskID(ctx)
	t.entry.queue, _ = asynq.GetQueueName(ctx)
	t.entry.weight = max(p.weights[t.entry.queue], 1)
	return t
}

// plan finds out what the task has to acquire. An error is a *BlockedError, and
// then the draws are those whose limiter could be found: one may have called the
// task. Whether a limit ever gives as much as the task costs is for the throttle to
// say: the limit in Redis counts, not the one of the configuration.
func (t *turn) plan() error {
	found, err := t.pool.w.plans.Plan(plan.Task{Type: t.task.Type(), Queue: t.entry.queue, Payload: t.task.Payload(), Headers: t.task.Headers()})
	t.job = t.pool.w.jobs[found.Job]
	for _, d := range found.Draws {
		limiter, unknown := t.pool.w.throttle.LimiterWithRate(d.Limiter, d.Limit.Rate)
		if unknown == nil {
			t.draws, t.limiters, t.entry.cost = append(t.draws, d), append(t.limiters, limiter), d.Cost
		} else if err == nil {
			err = &plan.Mistake{Reason: plan.BadKey, Type: t.task.Type(), Job: found.Job.Name, Limit: d.Limit.Name, Path: d.Limit.Key, Err: unknown}
		}
	}
	if mistake, ok := errors.AsType[*plan.Mistake](err); ok {
		return &BlockedError{Reason: BlockReason(mistake.Reason), Err: mistake, Mend: mistake.Mend()}
	}
	return err
}

// limiterNames are the names of the limiters that the task draws on.
func (t *turn) limiterNames() []string {
	names := make([]string, len(t.limiters))
	for i, l := range t.limiters {
		names[i] = l.Name()
	}
	return names
}

// leaveLine has the permits that are spoken for the task go to others, if a line
// called it and its attempt ended before it asked for them.
func (t *turn) leaveLine(ctx context.Context) {
	if t.arrived || len(t.limiters) == 0 {
		return
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if _, _, err := t.pool.w.lot.arrive(leaving, &t.entry, t.limiterNames()); err != nil {
		t.pool.w.logger.Debug("a called task leaves its line late", zap.String("task_id", t.entry.id), zap.String("queue", t.entry.queue), zap.Error(err))
	}
}

// reserve gets a place for the task's permits if its turn comes within hold and
// one of the pool's waiting slots is free, or if it comes at once. Otherwise it
// returns a *ThrottledError that names the limiter and the time; the handler
// has to return it, and the task parks.
func (t *turn) reserve(ctx context.Context) (err error) {
	if len(t.limiters) == 0 {
		return nil
	}
	t.close() // of an earlier reserve
	t.span = t.startAcquire(ctx, t.entry.cost)
	defer func() {
		if err != nil {
			endSpan(t.span, err)
		}
	}()
	defer t.clock()()
	running, cancel := t.pool.w.whileRunning(ctx)
	defer cancel()
	if err := t.enter(running); err != nil {
		return t.refusal(ctx, err)
	}
	maxWait := t.maxWait(ctx)
	if maxWait > 0 && !t.takeWaitingSlot() {
		maxWait = 0
	}
	r, err := t.ask(running, t.entry.cost, maxWait)
	if err != nil {
		t.close()
		return t.refusal(ctx, err)
	}
	if !r.OK() {
		t.close()
		return &ThrottledError{Limiter: r.Limiter(), RetryAfter: r.Delay(), parks: true}
	}
	t.reservation = r
	return nil
}

// wait returns when it is the task's turn. Like reserve it may return a
// *ThrottledError: the worker drains, or the limit was paused or lowered, so
// that the turn comes later than hold allows.
func (t *turn) wait(ctx context.Context) (err error) {
	r := t.reservation
	if r == nil {
		return nil
	}
	defer t.close()
	defer func() { endSpan(t.span, err) }()
	stop := t.clock()
	running, cancel := t.pool.w.whileRunning(ctx)
	defer cancel()
	running, cancelWait := context.WithTimeout(running, max(t.maxWait(ctx), r.Delay())+slack)
	defer cancelWait()
	if err := r.Wait(running); err != nil {
		return t.refusal(ctx, err)
	}
	stop()
	t.job.counts.wait(t.waited)
	t.took(t.entry.cost)
	return nil
}

// again waits for the permits of another request of the same job.
func (t *turn) again(ctx context.Context) error {
	if len(t.limiters) == 0 {
		return nil
	}
	if err := t.more(ctx, t.entry.cost); err != nil {
		return t.refusal(ctx, err)
	}
	return nil
}

// more waits for n permits beyond those the task began with, for as long as it
// has time. It does not park: a job that started is better finished than begun
// anew, and under load a task that parks between two requests would never get both.
func (t *turn) more(ctx context.Context, n int64) (err error) {
	span := t.startAcquire(ctx, n)
	defer func() { endSpan(span, err) }()
	running, cancel := t.pool.w.whileRunning(ctx)
	defer cancel()
	r, err := t.ask(running, n, config.HoldForever)
	if err != nil {
		return err
	}
	if err := r.Wait(running); err != nil {
		return err
	}
	t.took(n)
	return nil
}

// pause stops the limits of the job that its pause_on_429 names for d, for the
// whole fleet, but never longer than its max_pause.
func (t *turn) pause(ctx context.Context, d time.Duration) error {
	if t.job == nil {
		return nil
	}
	d = min(d, t.job.MaxPause)
	for i, draw := range t.draws {
		if !draw.Pauses {
			continue
		}
		if err := t.limiters[i].Pause(ctx, d); err != nil {
			return err
		}
		t.counts(draw).paused.Add(1)
	}
	return nil
}

// close gives back what is reserved and not used, and the waiting slot.
func (t *turn) close() {
	if t.reservation != nil {
		t.reservation.Cancel()
		t.reservation = nil
		t.span.End() // if it was not waited for
	}
	if t.waiting {
		<-t.pool.waiting
		t.waiting = false
	}
}

func (t *turn) takeWaitingSlot() bool {
	select {
	case t.pool.waiting <- struct{}{}:
		t.waiting = true
	default:
	}
	return t.waiting
}

// maxWait is how long the task may wait in its slot: never more than half of
// the time it has left, because asynq counts the wait against the task's
// timeout, and fails the attempt when that is over. One that was called waits
// even without hold, since it is called a little before its turn.
func (t *turn) maxWait(ctx context.Context) time.Duration {
	d := t.job.Hold
	if t.entry.limiter != "" {
		d = max(d, lead+slack)
	}
	if deadline, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(deadline)/2)
	}
	return d
}

// enter returns a *ThrottledError if tasks of the same queue are in line already.
func (t *turn) enter(ctx context.Context) error {
	names := t.limiterNames()
	for i, d := range t.draws {
		if d.Limit.Key != "" && t.pool.w.applied.add(d.Limiter) {
			if _, err := t.limiters[i].ApplyRate(ctx, d.Limit.Rate); err != nil {
				return err
			}
		}
	}
	t.arrived = true
	limiter, ahead, err := t.pool.w.lot.enter(ctx, &t.entry, names)
	if err != nil || limiter == "" {
		return err
	}
	rate := t.draws[slices.Index(names, limiter)].Limit.Rate
	wait := time.Duration(float64(ahead) / float64(rate.Permits) * float64(rate.Interval))
	return &ThrottledError{Limiter: limiter, RetryAfter: wait, parks: true}
}

// ask reserves n permits of all limiters, or of none.
func (t *turn) ask(ctx context.Context, n int64, maxWait time.Duration) (*throttle.Reservation, error) {
	if len(t.limiters) == 1 {
		return t.limiters[0].Reserve(ctx, n, maxWait)
	}
	g, err := t.pool.w.throttle.Group(t.limiters...)
	if err != nil {
		return nil, err
	}
	return g.Reserve(ctx, n, maxWait)
}

// refusal turns an error of the throttle or of Redis into what the attempt returns.
func (t *turn) refusal(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*ThrottledError](err); ok {
		return err
	}
	if blocked := blockedByLimit(err); blocked != nil {
		return blocked
	}
	if ctx.Err() != nil && !t.pool.w.stopping() {
		return err // the task's own deadline or cancellation
	}
	// Nothing was decided: try later rather than burn an attempt.
	return &ThrottledError{Limiter: t.limiters[0].Name(), RetryAfter: retryUndecided, Err: err, parks: true}
}
