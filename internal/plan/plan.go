// Package plan finds out what a task has to get before it runs: which limits it
// has, which limiter of each, and what it costs. The plan depends on nothing but
// the configuration and the task. The package does no I/O, reads no clock and
// knows nothing of asynq, so whoever asks gets the same answer: a worker, an asynq
// server of one's own, or a command that checks jobs before they are enqueued.
//
// The package is internal, and not part of package config, because only our own
// packages ask it. New kinds of limits may change the shape of a plan, and break
// nobody.
package plan

import (
	"github.com/jobthrottle/jobthrottle/internal/expr"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// Task is what a plan depends on.
type Task = expr.Task

// Plan is what a task has to get: from all of its limits, or from none.
type Plan struct {
	Job   *Job   // nil if no pattern of the configuration matches
	Draws []Draw // in the order of Job.Limits; none if the task has no limits
}

// Draw is what a task takes of one limit.
type Draw struct {
	Limit   *Limit
	Limiter string        // the limit's own name, or that of the task's value of its key
	Rate    throttle.Rate // of the limiter, as configured
	Cost    int64         // permits
	Pauses  bool          // the limiter pauses when the task's API says to try later
}

// Plan returns the plan of a task. An error is a *Mistake; the plan then has those
// draws whose limiter is known, at no cost where the cost is the mistake.
//
// Whether a limit ever gives as much as the task costs is not known here: that
// depends on the limit in Redis, not on the one of the configuration.
func (js *Jobs) Plan(t Task) (Plan, error) {
	j := js.For(t.Type)
	if j == nil || len(j.Limits) == 0 {
		return Plan{Job: j}, nil
	}
	p := Plan{Job: j, Draws: make([]Draw, 0, len(j.Limits))}
	ns, err := j.costs.of(t, j.Name)
	for i, l := range j.Limits {
		limiter, wrong := l.limiterOf(t, j)
		if wrong == nil {
			p.Draws = append(p.Draws, Draw{Limit: l, Limiter: limiter, Rate: l.RateOf(limiter), Cost: ns[i], Pauses: j.pauses[i]})
		} else if err == nil {
			err = wrong
		}
	}
	return p, err
}

// limiterOf returns the name of the limiter that a task of the job draws on.
func (l *Limit) limiterOf(t Task, j *Job) (string, error) {
	if l.Key == "" {
		return l.Name, nil
	}
	name, err := l.ofValue(t)
	if err != nil {
		return "", &Mistake{Reason: BadKey, Type: t.Type, Job: j.Name, Limit: l.Name, Path: l.Key, Err: err}
	}
	return name, nil
}
