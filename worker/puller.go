package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
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

// puller brings parked tasks back when their permits come due. The workers that
// serve a queue share its lines; each line is looked at by one of them at a time.
type puller struct {
	lot       *lot
	fleet     *operate.Fleet
	client    string // this worker's, by which PerClient limiters know it
	inspector *asynq.Inspector
	logger    *zap.Logger
	queues    []string // that this worker serves
	adoption  adoption
	late      []lateCalls
}

// lateCalls are tasks that were called before they had left their slots.
type lateCalls struct {
	limiter string
	calls   []call
	until   time.Time // when their line takes them back
}

func newPuller(w *Worker) *puller {
	return &puller{
		lot: w.lot, fleet: w.Fleet(), client: w.ID(), inspector: w.inspector, logger: w.logger,
		queues: w.queues(), adoption: newAdoption(w.rdb),
	}
}

// queues returns the queues that the worker serves, by name.
func (w *Worker) queues() []string {
	queues := map[string]bool{}
	for _, pc := range w.cfg.Pools {
		for queue := range pc.QueueWeights() {
			queues[queue] = true
		}
	}
	return sortedKeys(queues)
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
	var errs []error
	if err := p.adoption.step(ctx, time.Now()); err != nil {
		errs = append(errs, fmt.Errorf("adopt parked tasks of an older version: %w", err))
	}
	p.lot.backlog.beside(p.adoption.before)
	if err := p.bringLate(ctx); err != nil {
		errs = append(errs, fmt.Errorf("bring called tasks back: %w", err))
	}
	running, err := p.lot.backlog.refresh(ctx, p.lot.rdb, p.queues)
	if err != nil {
		return next, errors.Join(append(errs, fmt.Errorf("read the indexes of parked tasks: %w", err))...)
	}
	if len(running) == 0 {
		return next, errors.Join(errs...)
	}
	// Many lines of one queue shall not keep the worker from those of another.
	p.queues = append(p.queues[1:], p.queues[0])
	claims, err := p.lot.claims(ctx, running)
	if err != nil {
		return next, errors.Join(append(errs, fmt.Errorf("claim lines of parked tasks: %w", err))...)
	}
	for _, c := range claims {
		delays, err := p.look(ctx, c.limiter, c.queues)
		if err == nil {
			err = p.lot.done(ctx, c, delays)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("limiter %q: %w", c.limiter, err))
			continue
		}
		for _, delay := range delays {
			if delay >= 0 {
				next = min(next, delay+time.Millisecond) // due by then, to the millisecond
			}
		}
	}
	return next, errors.Join(errs...)
}

// look calls the tasks of a limiter's lines whose permits come due, and returns
// when to look again at each: negative if nobody is in line.
func (p *puller) look(ctx context.Context, limiter string, queues []string) ([]time.Duration, error) {
	budget, wait, err := p.budget(ctx, limiter)
	if err != nil {
		return nil, err
	}
	calls, left, err := p.lot.next(ctx, limiter, queues, budget)
	if err != nil {
		return nil, err
	}
	if err := p.bringAll(ctx, limiter, calls); err != nil {
		return nil, err
	}
	delays := make([]time.Duration, len(queues))
	for i := range delays {
		delays[i] = nextLook(left[i], wait)
	}
	return delays, nil
}

// nextLook is when to look again at a line that has so many tasks, and whose
// limiter's next permit comes after wait.
func nextLook(left int64, wait time.Duration) time.Duration {
	switch {
	case left == 0:
		return -1
	case wait > lead:
		return min(wait-lead, maxLook)
	case wait > 0: // more may come due at once than there are slots to wait for them ahead of it
		return min(wait, pullInterval/2)
	}
	return pullInterval / 2
}

// budget is how many permits of the limiter come due within lead, and how long
// it takes until one does.
func (p *puller) budget(ctx context.Context, name string) (int64, time.Duration, error) {
	u, err := p.fleet.InspectClient(ctx, p.client, name)
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
// parked just now may still be on its way out of its slot: those get a moment,
// and are tried again by later pulls.
func (p *puller) bringAll(ctx context.Context, limiter string, calls []call) (err error) {
	until := time.Now().Add(patience)
	for range 5 {
		if calls, err = p.bringThese(ctx, limiter, calls); err != nil || len(calls) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	p.late = append(p.late, lateCalls{limiter, calls, until})
	return nil
}

// bringLate tries those again that were still active when they were called. One
// that runs meanwhile, because asynq has brought it back by itself, is forgotten
// when its line gives up on it.
func (p *puller) bringLate(ctx context.Context) error {
	var errs []error
	late := p.late
	p.late = nil
	for _, l := range late {
		if time.Now().After(l.until) {
			continue
		}
		active, err := p.bringThese(ctx, l.limiter, l.calls)
		if err != nil {
			errs = append(errs, fmt.Errorf("limiter %q: %w", l.limiter, err))
			active = l.calls
		}
		if len(active) > 0 {
			p.late = append(p.late, lateCalls{l.limiter, active, l.until})
		}
	}
	return errors.Join(errs...)
}

// bringThese moves called tasks to the front of their queues, and returns those
// that are active.
func (p *puller) bringThese(ctx context.Context, limiter string, calls []call) (active []call, err error) {
	pending := map[string][]any{}
	for _, c := range calls {
		state, queue, id, err := p.bring(ctx, limiter, c)
		if err != nil {
			return nil, err
		}
		switch state {
		case asynq.TaskStateActive:
			active = append(active, c)
		case asynq.TaskStateRetry, asynq.TaskStateScheduled:
			pending[queue] = append(pending[queue], id)
		}
	}
	for queue, ids := range pending {
		if err := p.lot.front(ctx, queue, ids); err != nil {
			return nil, err
		}
	}
	return active, nil
}

// bring moves a called task to its queue, unless it is there or running, and
// returns the state that it found. One that is gone or done leaves the line, and
// so does one that is not the task that parked.
func (p *puller) bring(ctx context.Context, limiter string, c call) (state asynq.TaskState, queue, id string, err error) {
	if queue, id, err = parseEntry(c.name); err != nil {
		return 0, "", "", p.lot.forget(ctx, limiter, c.name)
	}
	info, err := p.inspector.GetTaskInfo(queue, id)
	if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) {
		return 0, "", "", p.lot.forget(ctx, limiter, c.name)
	}
	if err != nil {
		return 0, "", "", err
	}
	switch {
	case info.State == asynq.TaskStatePending, info.State == asynq.TaskStateActive:
		return info.State, queue, id, nil // on its way
	case waits(info, c.back):
		// An error is a task that has moved on since, or comes by its fallback.
		if err := p.inspector.RunTask(queue, id); err != nil {
			p.logger.Debug("parked task moved on by itself", zap.String("queue", queue), zap.String("task_id", id), zap.Error(err))
		}
		return info.State, queue, id, nil
	}
	return 0, "", "", p.lot.forget(ctx, limiter, c.name) // done, archived or another one: RunTask would run it again
}

// waits says whether a task is the one that parked when asynq was to bring it
// back at that time, in seconds after 1970. One that was enqueued again under its
// id, or that failed since, comes back at another. So does one that was put off
// meanwhile for another reason, but that waits for nothing else. 0 is any time:
// tasks that an older version parked.
func waits(info *asynq.TaskInfo, back int64) bool {
	switch {
	case info.State != asynq.TaskStateRetry && info.State != asynq.TaskStateScheduled:
		return false
	case back == 0, info.State == asynq.TaskStateRetry && wasPutOff(info):
		return true
	}
	away := info.NextProcessAt.Unix() - back
	return -1 <= away && away <= 1 // asynq reads the clock again, and knows seconds
}

// wasPutOff says whether the last attempt of a task was no failure.
func wasPutOff(info *asynq.TaskInfo) bool { return isThrottled(info.LastErr) }
