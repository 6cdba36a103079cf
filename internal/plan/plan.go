// Package plan finds out what a task has to get before it runs: which limits it has, which
// limiter of each, and what it costs. The plan depends only on the configuration and the task.
// The package does no I/O, reads no clock and does not use asynq. So all callers get the same
// answer: a worker, a user's own asynq server, or a command that checks jobs before they are
// enqueued.
//
// The package is internal, and not part of package config, because only our own packages use
// it. New kinds of limits may change the type of a plan without breaking anybody.
package plan

import (
	"cmp"
	"fmt"

	"github.com/jobthrottle/jobthrottle/internal/expr"
	"github.com/jobthrottle/jobthrottle/internal/fair"
	"github.com/jobthrottle/jobthrottle/internal/limitname"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// Task is what a plan depends on.
type Task = expr.Task

// Plan is what a task has to get: from all of its limits, or from none.
type Plan struct {
	Job   *Job   // nil if no pattern of the configuration matches
	Draws []Draw // in the order of Job.Limits; none if the task has no limits
	Slots []Slot // in the order of Job.Slots

	// Dry and DrySlots are of limits that only tell which tasks would wait: nothing depends on them.
	Dry      []Draw
	DrySlots []Slot
}

// Draw is what a task takes from one limit.
type Draw struct {
	Limit   *Limit
	Limiter string        // the limit's own name, or that of the task's value of its key
	Rate    throttle.Rate // of the limiter, as configured
	Cost    int64         // permits
	Pauses  bool          // the limiter pauses when the task's API says to try later
	Tenant  string        // the tenant of the task, where tenants share the limiter; else empty
	Mistake error         // of Plan.Dry: why the task would be blocked, a *Mistake; else nil
}

// Plan returns the plan of a task. An error is a *Mistake. The plan then has the draws whose
// limiter is known, with no cost where the cost is the mistake.
//
// Plan does not check whether a limit ever gives as much as the task costs: that depends on the
// limit in Redis, not on the one in the configuration.
func (js *Jobs) Plan(t Task) (Plan, error) {
	j := js.For(t.Type)
	if j == nil || len(j.Limits) == 0 && len(j.Slots) == 0 {
		return Plan{Job: j}, nil
	}
	p := Plan{Job: j}
	badSlot := p.addSlots(t)
	if len(j.Limits) == 0 {
		return p, badSlot
	}
	p.Draws = make([]Draw, 0, len(j.Limits))
	var badCost, badKey error
	for i, of := range j.costs.of(t, j.Name) {
		l := j.Limits[i]
		limiter, noKey := limiterOf(l.Name, l.Key, l.key, t, j)
		d := Draw{Limit: l, Limiter: limiter, Rate: l.RateOf(limiter), Cost: of.permits, Pauses: j.pauses[i]}
		if l.Dry {
			d.Mistake = cmp.Or(of.mistake, noKey)
			p.Dry = append(p.Dry, d)
			continue
		}
		noTenant := noKey
		if noKey == nil {
			d.Tenant, noTenant = l.tenantOf(t, j)
			p.Draws = append(p.Draws, d)
		}
		badCost, badKey = cmp.Or(badCost, of.mistake), cmp.Or(badKey, noTenant)
	}
	return p, cmp.Or(badCost, badKey, badSlot)
}

// limiterOf returns the name of what a task of the job gets of a limit: the limit's own name, or that of the task's value
// of its key. An error is a *Mistake.
func limiterOf(limit, key string, of expr.Selector, t Task, j *Job) (string, error) {
	if key == "" {
		return limit, nil
	}
	value, err := of.Pick(t)
	if err != nil {
		err = fmt.Errorf("limit %q: %w", limit, err)
	} else if name, wrong := limitname.OfValue(limit, value); wrong == nil {
		return name, nil
	} else {
		err = wrong
	}
	return "", &Mistake{Reason: BadKey, Type: t.Type, Job: j.Name, Limit: limit, Path: key, Err: err}
}

// tenantOf returns the tenant of the task, where tenants share the limit.
func (l *Limit) tenantOf(t Task, j *Job) (string, error) {
	if l.Share == "" {
		return "", nil
	}
	tenant, err := l.share.Pick(t)
	if err == nil {
		err = fair.CheckTenant(tenant)
	}
	if err != nil {
		return "", &Mistake{Reason: BadShare, Type: t.Type, Job: j.Name, Limit: l.Name, Path: l.Share, Err: fmt.Errorf("the share of limit %q: %w", l.Name, err)}
	}
	return tenant, nil
}
