package asynqlimit

import (
	"sync/atomic"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/history"
)

// tally is what happened to the jobs of a limit, or to all jobs, since the last time this was
// added to the fleet's history.
type tally struct {
	started, failed, refused atomic.Int64
	waited, longest          atomic.Int64 // nanoseconds
}

func (t *tally) start(waited time.Duration) {
	t.started.Add(1)
	t.waited.Add(int64(waited))
	for {
		longest := t.longest.Load()
		if int64(waited) <= longest || t.longest.CompareAndSwap(longest, int64(waited)) {
			return
		}
	}
}

// take returns the counts, and begins again at zero.
func (t *tally) take() history.Counts {
	return history.Counts{
		Started: t.started.Swap(0), Failed: t.failed.Swap(0), Refused: t.refused.Swap(0),
		Waited: time.Duration(t.waited.Swap(0)), Longest: time.Duration(t.longest.Swap(0)),
	}
}

// tallies takes what happened in this process, by limit; the empty name stands for all jobs.
func (p *process) tallies() map[string]history.Counts {
	all := map[string]history.Counts{"": p.tally.take()}
	for _, limit := range p.rules.plan.Limits() {
		all[limit.Name] = p.rules.limits[limit].tally.take()
	}
	return all
}

// tally calls do for the tallies that the task belongs to.
func (j *job) tally(do func(*tally)) {
	do(&j.l.tally)
	for i, draw := range j.needs.draws {
		limit := j.l.rules.limits[draw.Limit]
		seen := false // a task draws on a limit once, or for several values
		for _, before := range j.needs.draws[:i] {
			seen = seen || before.Limit == draw.Limit
		}
		if !seen {
			do(&limit.tally)
		}
	}
}
