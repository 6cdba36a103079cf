package asynqlimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// job is one attempt of one task inside the middleware: from its dequeue to what it returns to
// asynq.
//
// The middleware gets the permits and then calls the handler, except for jobs with acquire:
// handler: their handlers call Acquire immediately before they use the permits.
type job struct {
	l       *Limits
	a       *attempt
	task    *asynq.Task
	needs   needs
	began   time.Time
	limiter []*throttle.Limiter // it takes permits of all of them together
	slots   *throttle.SlotGroup // what it holds slots of while it runs; nil: nothing

	reservation *throttle.Reservation
	waited      time.Duration
	handling    time.Time     // when its handler began; zero: not yet
	before      time.Duration // the part of waited that lies before its handler began
	taken       []takes       // of each limiter, so far
	missed      bool          // it had no slot when its permits were due
	held        bool          // it has its permits
	sent        time.Time     // when it got its latest permits
	observed    bool          // the outcome of the request with these permits has been reported
	goes        bool          // it runs as soon as it has its permits
	leaves      bool          // it leaves the list of waiting tasks while it asks
	inFlight    bool
	lease       *throttle.Lease // of its slots; nil: it has no slots
	counted     bool            // it counts among the jobs that run in slots
	drySlots    drySlots        // those of limits with dry_run
	waitsBy     time.Time       // until when it waits, for whatever it is; zero: it has not waited yet, or not since its handler called Hold or Acquire
	late        bool            // it had its slots, but none of the process in time
	hadSlots    bool            // it had its slots, but no permits in time
	acquires    bool            // its handler acquires the permits
	freed       bool            // it holds nothing any more
	span        func(error)     // ends the span of a wait for permits; nil: there is none
	spans       sync.WaitGroup  // those that end
}

type jobKey struct{}

func jobFrom(ctx context.Context) *job {
	j, _ := ctx.Value(jobKey{}).(*job)
	return j
}

// errNotOurs is the error of tasks whose server does not use our client.
var errNotOurs = errors.New("asynqlimit: the server was not made with Limits.Redis()")

// middleware takes each attempt of a task through its limits and its handler.
func (l *Limits) middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) (err error) {
		id, _ := asynq.GetTaskID(ctx)
		queue, _ := asynq.GetQueueName(ctx)
		a := l.attempts.get(queue, id)
		switch {
		case a == nil:
			return errNotOurs
		case !a.start():
			return errGone
		}
		j := &job{l: l, a: a, task: task, began: time.Now()}
		ended := errPanicked
		defer func() { j.end(ended) }()
		var attempt asynq.Handler = asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			defer j.spans.Wait()
			defer j.closeSpan(nil) // of permits that were held and never used
			defer j.free()
			return j.attempt(ctx, next)
		})
		if l.opts.Attempt != nil {
			attempt = l.opts.Attempt(attempt)
		}
		ended = attempt.ProcessTask(ctx, task)
		return ended
	})
}

// errPanicked stands for the result of an attempt that returned none.
var errPanicked = errors.New("panicked")

// attempt takes the task through its limits and its handler, and turns the result into what asynq
// has to know.
func (j *job) attempt(ctx context.Context, next asynq.Handler) error {
	err := j.process(ctx, next)
	if err == nil {
		return nil
	}
	if after, ok := errors.AsType[*RetryAfterError](err); ok {
		err = j.refused(ctx, after, err)
	}
	if blocked := asBlocked(err); blocked != nil {
		err = j.block(blocked)
	}
	throttled, ok := errors.AsType[*ThrottledError](err)
	if !ok {
		return err
	}
	j.l.logPutOff(j.a.queue, j.a.id, j.task.Type(), throttled)
	return err
}

// logPutOff logs that a job was put off.
func (l *Limits) logPutOff(queue, id, taskType string, why *ThrottledError) {
	l.logger.Debug("put off", "task_id", id, "type", taskType, "queue", queue, "limiter", why.Limiter, "wait", why.RetryAfter)
}

func (j *job) process(ctx context.Context, next asynq.Handler) error {
	if err := j.plan(next); err != nil {
		return err
	}
	if err := j.compete(ctx); err != nil {
		return err
	}
	if err := j.awaitOrder(ctx); err != nil {
		return err
	}
	if err := j.enterFlight(ctx); err != nil {
		return err
	}
	switch {
	case j.slots != nil:
		if err := j.together(ctx); err != nil {
			return err
		}
	case !j.acquires || len(j.limiter) == 0:
		if err := j.acquire(ctx); err != nil {
			return err
		}
	}
	return j.run(ctx, next)
}

// mux is a handler of several types, such as an *asynq.ServeMux: it returns the pattern for which
// a task's handler is registered, or none.
type mux interface {
	Handler(*asynq.Task) (asynq.Handler, string)
}

// plan finds out what the task has to acquire, and checks that there is a handler for it. An
// error is a *BlockedError. Whether a limit ever gives as many permits as the task costs is for
// the throttle to decide, because the limit in Redis counts, not the one in the configuration.
func (j *job) plan(next asynq.Handler) (err error) {
	if mux, ok := next.(mux); ok {
		_, pattern := mux.Handler(j.task)
		j.acquires = slices.Contains(j.l.opts.HandlersAcquire, pattern)
		if pattern == "" {
			return &BlockedError{Reason: NoHandler, Err: fmt.Errorf("%w %q", asynq.ErrHandlerNotFound, j.task.Type()), Fix: "run a worker that has a handler for this type"}
		}
	}
	if j.needs, err = j.l.rules.of(plan.Task{Type: j.task.Type(), Queue: j.a.queue, Payload: j.task.Payload(), Headers: j.task.Headers()}); err != nil {
		return err
	}
	j.acquires = j.acquires || j.needs.rule != nil && j.needs.rule.Acquires
	j.taken = make([]takes, len(j.needs.limiters))
	for i, name := range j.needs.limiters {
		limiter, err := j.l.throttle.LimiterWithRate(name, j.needs.draws[i].Rate)
		if err != nil {
			return &BlockedError{Reason: BadKey, Err: err, Fix: "correct the key of the limit, or the job"}
		}
		j.limiter = append(j.limiter, limiter)
	}
	if j.slots, err = j.slotGroup(); err != nil {
		return &BlockedError{Reason: BadKey, Err: err, Fix: "correct the key of the limit, or the job"}
	}
	return nil
}

// parkingIn returns how the task parks in the line of that name: by its first arrival, so that a
// task that was in line before gets its old position back.
func (j *job) parkingIn(name string) line.Parking {
	p := line.Parking{Line: name, Since: j.a.since, Cost: 1, Refused: j.refusedFirst(time.Now())}
	if !line.IsBlocked(name) { // jobs are called from a blocked line by number, not by cost
		p.Cost, p.Line = j.needs.costOf(name), j.needs.lineOf(name)
	}
	if limiter, ok := line.SlotLimit(name); ok {
		p.Since = j.comesAt(limiter)
	}
	return p
}

// throttled parks the task in the line of a limiter.
func (j *job) throttled(limiter string, after time.Duration, why error) *ThrottledError {
	j.a.decide(parks, j.parkingIn(limiter))
	return &ThrottledError{Limiter: limiter, RetryAfter: after, Err: why}
}

// nowOrPark is hold for a task for which there is no room. A reservation does not say which of several limits is the one
// that the task has to wait for: a refusal does, and the task parks in the line of that limit. In another line it would only
// stand in the way of tasks that could have permits now.
func (j *job) nowOrPark(ctx, running context.Context) error {
	r, err := j.ask(running, 0)
	if err != nil {
		return j.undecided(ctx, err)
	}
	if !r.OK() {
		return j.throttled(r.Limiter(), r.Delay(), nil)
	}
	j.reservation = r
	return nil
}

// retryUndecided is about how long after Redis gave no answer a task is tried again.
const retryUndecided = time.Second

// errDraining is why a task goes back to its queue: its process shuts down.
var errDraining = errors.New("the process shuts down")

// undecided turns the error that ended a wait for permits into what the attempt returns: the
// limits have decided nothing.
func (j *job) undecided(ctx context.Context, err error) error {
	if isPutOff(err) {
		return err
	}
	draining := j.l.draining.Err() != nil
	f, name := fateOf(j.a.at(), err, ctx.Err() != nil, draining), ""
	if len(j.limiter) > 0 {
		name = j.limiter[0].Name()
	}
	switch {
	case f == asynqs:
		return err
	case draining:
		err = errDraining
	default:
		if blocked := blockedByLimit(err); blocked != nil {
			return blocked
		}
	}
	if f == parks && name == "" && len(j.needs.slots) > 0 {
		throttled := j.parkForSlot(j.needs.slots[0].Limiter)
		throttled.Err, throttled.RetryAfter = err, retryUndecided
		return throttled
	}
	if f == parks && name != "" {
		return j.throttled(name, retryUndecided, err)
	}
	j.a.decide(returns, j.parkingIn(name))
	return &ThrottledError{Limiter: name, Err: err}
}

// goesOnElsewhere reports whether the task goes on waiting although its attempt has ended with err: it has not begun, and
// cannot begin here any more, because its lease is over.
func (j *job) goesOnElsewhere(err error) bool {
	return err != nil && j.a.at() != runs && !j.a.leases()
}

// free gives back what the attempt holds.
func (j *job) free() {
	if j.freed {
		return
	}
	j.freed = true
	j.a.ask()
	j.l.caller.answered(j.a)
	j.uncalled()
	j.giveUp()
	if j.movesOn() {
		j.l.caller.leavesOver(j.a.queue, j.a.wait)
	}
	j.freeSlots()
	j.drySlots.end()
	j.leaveFlight()
	j.a.position.leave()
}

// end counts how the attempt ended, and takes it from the lists.
func (j *job) end(err error) {
	j.free() // Options.Attempt need not have called the handler
	switch {
	case j.goesOnElsewhere(err):
		if !isPutOff(err) {
			j.a.goesBack()
			err = errGone
		}
		j.l.rooms.of(j.a).enter(j.a)
	case err != nil && !isPutOff(err) && !errors.Is(err, errGone):
		j.a.decide(asynqs, line.Parking{}) // it has failed
		if !errors.Is(err, asynq.RevokeTask) {
			j.tally(func(t *tally) { t.failed.Add(1) })
		}
	}
	j.counts().attempt(err)
	if throttled, ok := errors.AsType[*ThrottledError](err); ok {
		j.countsPark(throttled)
	}
	done := err == nil || errors.Is(err, asynq.RevokeTask)
	j.a.finish(done)
	if done { // asynq ends it with a script that does not know the list
		j.l.rooms.of(j.a).leaving(j.a)
	}
	j.l.attempts.drop(j.a)
	if j.a.wait.State == line.Called && line.IsBlocked(j.a.wait.Line) {
		blocked := asBlocked(err)
		j.l.caller.saw(j.a.queue, j.a.wait.Line, blocked == nil || blockedLine(blocked.Reason, j.task.Type()) != j.a.wait.Line)
	}
}

// block parks a job that cannot run as things stand. It logs this once a minute for each reason
// and type.
func (j *job) block(blocked *BlockedError) *ThrottledError {
	name := blockedLine(blocked.Reason, j.task.Type())
	p := j.parkingIn(name)
	if j.a.wait.Line == name {
		p.Since = 0 // behind the others: perhaps they can run
	}
	j.a.decide(parks, p)
	if jobs := j.l.reports.add(time.Now(), name); jobs > 0 {
		j.l.logger.Warn("jobs wait for something to be fixed", "reason", string(blocked.Reason), "type", j.task.Type(),
			"attempts", jobs, "task_id", j.a.id, "queue", j.a.queue, "error", blocked)
	}
	return &ThrottledError{RetryAfter: probeMost, Err: blocked}
}

// blockedLine is the name of the line for jobs of a type that cannot run for that reason.
func blockedLine(reason BlockReason, taskType string) string {
	return "!" + string(reason) + ":" + taskType
}
