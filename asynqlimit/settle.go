package asynqlimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// holdForever is longer than any wait.
const holdForever = 100 * 365 * 24 * time.Hour

// errNoJob is for contexts that are not those of a handler.
var errNoJob = errors.New("this is not the context of a job's handler")

// Unlimited returns the context of a job without limits, for tests of handlers that call
// [Acquire] or [Settle].
func Unlimited(ctx context.Context) context.Context {
	return context.WithValue(ctx, jobKey{}, &job{})
}

// Acquire gets the permits of the job of ctx, for handlers of jobs with acquire: handler. Call it
// immediately before the permits are used. The handler has to return its error. If the permits
// are not due soon, that is a [*ThrottledError], and the job parks. Acquire does nothing for jobs
// that have their permits, or need none.
//
// A handler that has to prepare what it uses, for example a connection, may call [Hold] first.
func Acquire(ctx context.Context) error {
	j := jobFrom(ctx)
	if j == nil {
		return fmt.Errorf("acquire: %w", errNoJob)
	}
	if len(j.limiter) == 0 || j.held {
		return nil
	}
	j.waitsBy = time.Time{}
	if err := j.acquire(ctx); err != nil {
		return err
	}
	if !j.begins(ctx) {
		return cmp.Or(ctx.Err(), errGone)
	}
	return nil
}

// Hold returns shortly before the permits of the job of ctx are due. It is the first part of
// [Acquire]. Like Acquire it may return a [*ThrottledError], which the handler has to return.
func Hold(ctx context.Context) error {
	j := jobFrom(ctx)
	if j == nil {
		return fmt.Errorf("hold: %w", errNoJob)
	}
	j.waitsBy = time.Time{}
	if err := j.hold(ctx); err != nil {
		return err
	}
	return nil
}

// AcquireMore gets the permits of another request of the same job, and waits as long as the job
// has time. The job does not park: it is better to finish a job that has started than to begin it
// again. If the permits are due too late, the attempt has failed. A process that drains waits for
// permits that are due before its shutdown timeout is nearly over. If they are due later, it gives
// the job back, with a [*ThrottledError].
func AcquireMore(ctx context.Context) error {
	j := jobFrom(ctx)
	if j == nil {
		return fmt.Errorf("acquire: %w", errNoJob)
	}
	if len(j.limiter) > 0 {
		if err := j.more(ctx, j.needs.costs); err != nil {
			return j.undecided(ctx, err)
		}
	}
	j.dryRun()
	return nil
}

// Settle corrects what the job of ctx took from its limits, once its handler knows what the job
// really cost: for example the tokens of an LLM call, if the configured permits were an estimate.
// If the job took too much, the rest is given back for others to use. If it took too little,
// Settle takes the rest now, in turn, which may last as long as any wait for permits: a job that
// costs more than it said keeps its slot until the limits have made up for it. So call Settle
// last, and as often as the cost changes.
//
// An error says that the difference is not, or not entirely, settled: Redis gave no answer, the
// process drains, or ctx ends before the permits are due. The job's work is done all the same: do
// not return the error, because then the work would be done again.
//
// If a job's permits differ by limit, settle each limit with [SettleLimit]. Settle returns an
// error for such a job, because one number cannot be the cost in requests and the cost in tokens.
//
// Call Settle on the goroutine of the handler. It does nothing for jobs without limits.
func Settle(ctx context.Context, cost int64) error { return settle(ctx, "", cost) }

// SettleLimit is [Settle] for one limit of the job, by its name in the configuration. The other
// limits stay as they are.
func SettleLimit(ctx context.Context, limit string, cost int64) error {
	if limit == "" {
		return errors.New("settle: no limit is named")
	}
	return settle(ctx, limit, cost)
}

func settle(ctx context.Context, limit string, cost int64) error {
	j := jobFrom(ctx)
	switch {
	case j == nil:
		return fmt.Errorf("settle: %w", errNoJob)
	case cost < 0:
		return fmt.Errorf("settle: a job cannot cost %d permits", cost)
	case len(j.limiter) == 0:
		return nil
	case limit == "" && len(j.limiter) > 1 && j.needs.rule.CostsByLimit():
		return errors.New("settle: the permits of this job differ by limit: say which one with SettleLimit")
	}
	of := make([]bool, len(j.limiter))
	for i, d := range j.needs.draws {
		of[i] = limit == "" || d.Limit.Name == limit
	}
	if slices.ContainsFunc(j.needs.dry, func(d plan.Draw) bool { return d.Limit.Name == limit }) {
		return nil // nobody waits for it
	}
	if !slices.Contains(of, true) {
		return fmt.Errorf("settle: %q is no limit of this job", limit)
	}
	if err := j.giveBack(ctx, of, cost); err != nil {
		return err
	}
	return j.makeUp(ctx, of, cost)
}

// makeUp takes the permits that are missing, in portions that the limits give at once.
func (j *job) makeUp(ctx context.Context, of []bool, cost int64) error {
	for i, l := range j.limiter {
		if !of[i] {
			continue
		}
		most := j.needs.draws[i].Rate.Permits
		for j.taken[i].sum() < cost {
			most = min(most, cost-j.taken[i].sum())
			err := j.moreOf(ctx, i, l, most)
			if errors.Is(err, throttle.ErrExceedsRate) && most > 1 {
				most /= 2 // the limit has been lowered since
				continue
			}
			if err != nil {
				return fmt.Errorf("settle: %d of %d permits taken: %w", j.taken[i].sum(), cost, err)
			}
		}
	}
	return nil
}

// moreOf waits for n permits of one limit, as long as the task has time.
func (j *job) moreOf(ctx context.Context, i int, l *throttle.Limiter, n int64) (err error) {
	span := j.trace(ctx, []string{l.Name()}, n)
	defer func() { span(err) }()
	defer j.clock()()
	running, cancel := j.l.whileRunning(ctx)
	defer cancel()
	r, err := l.Reserve(running, n, holdForever)
	if err != nil {
		return err
	}
	if err := r.Wait(running); err != nil {
		return err
	}
	j.tookOf(i, &take{n, r, 0, 1})
	return nil
}

// more waits for permits beyond those with which the task began, also while the process drains, if it can have them in time:
// a task that is given back sends again what it has sent.
func (j *job) more(ctx context.Context, costs []int64) (err error) {
	span := j.trace(ctx, j.needs.limiters, j.needs.mostCost())
	defer func() { span(err) }()
	defer j.clock()()
	waiting, cancel := until(ctx, j.l.late)
	defer cancel()
	running, stop := j.l.whileRunning(waiting)
	defer stop()
	r, err := j.reserve(running, costs, j.l.left())
	if err != nil && running.Err() != nil && waiting.Err() == nil { // it drains
		r, err = j.reserve(waiting, costs, j.l.left())
	}
	if err != nil {
		return err
	}
	if !r.OK() && running.Err() != nil {
		return running.Err()
	}
	due := time.Now().Add(r.Delay())
	defer context.AfterFunc(j.l.draining, func() {
		if time.Until(due) > j.l.left() {
			cancel()
		}
	})()
	if err := r.Wait(waiting); err != nil {
		return err
	}
	j.took(costs, r)
	j.sent, j.observed = time.Now(), false
	return nil
}
