package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// Settle corrects what the job of ctx took of its limits, once its handler
// knows what it really cost: the tokens of an LLM call, say, of which permits
// was an estimate. What was too much is given back for others to use. What was
// too little is taken now, in turn, which may take as long as any wait for
// permits: a job that costs more than it said keeps its slot until the limits
// have made up for it. So call Settle last, and as often as the cost changes.
//
// An error says that the difference is not, or not entirely, settled: Redis
// gave no answer, or the worker drains or ctx ends before the turn comes. The
// job's work is done all the same; returning the error would do it again.
//
// Settle is for the goroutine of the handler. It does nothing for jobs without
// limits.
func Settle(ctx context.Context, cost int64) error {
	t := turnFrom(ctx)
	switch {
	case t == nil:
		return errors.New("settle: this is not the context of a job's handler")
	case cost < 0:
		return fmt.Errorf("settle: a job cannot cost %d permits", cost)
	case len(t.limiters) == 0:
		return nil
	case cost < t.taken:
		return t.giveBack(ctx, t.taken-cost)
	}
	most := t.mostAtOnce()
	for t.taken < cost {
		most = min(most, cost-t.taken)
		err := t.more(ctx, most)
		if errors.Is(err, throttle.ErrExceedsRate) && most > 1 {
			most /= 2 // a limit has been lowered since
			continue
		}
		if err != nil {
			return fmt.Errorf("settle: %d of %d permits taken: %w", t.taken, cost, err)
		}
	}
	return nil
}

// giveBack releases n permits of each limit.
func (t *turn) giveBack(ctx context.Context, n int64) error {
	var errs []error
	for _, l := range t.limiters {
		errs = append(errs, l.Release(ctx, n))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	t.taken -= n
	for _, d := range t.draws {
		t.counts(d).returned.Add(n)
	}
	return nil
}

// mostAtOnce is the largest number of permits that all limits of the task can
// give together, as they are configured.
func (t *turn) mostAtOnce() int64 {
	most := t.draws[0].Limit.Rate.Permits
	for _, d := range t.draws {
		most = min(most, d.Limit.Rate.Permits)
	}
	return most
}
