package plan

import (
	"fmt"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/expr"
)

// costs are the costs of the tasks of a job, limit by limit.
type costs struct {
	limits []string     // of the job, in its order
	own    []*expr.Cost // of each of them; nil where each applies
	each   expr.Cost
}

func newCosts(jc config.Job) (c costs, err error) {
	c = costs{limits: jc.Limits, own: make([]*expr.Cost, len(jc.Limits))}
	if c.each, err = expr.ParseCost(jc.Permits.Each); err != nil {
		return c, err
	}
	for i, name := range jc.Limits {
		text, ok := jc.Permits.ByLimit[name]
		if !ok {
			continue
		}
		own, err := expr.ParseCost(text)
		if err != nil {
			return c, fmt.Errorf("limit %q: %w", name, err)
		}
		c.own[i] = &own
	}
	return c, nil
}

// cost is what a task costs of a limit: nothing if the cost is a mistake.
type cost struct {
	permits int64
	mistake error // a *Mistake, or nil
}

// of returns what a task of the job costs of each limit.
func (c costs) of(t Task, job string) []cost {
	read := func(limit string, x expr.Cost) (of cost) {
		n, wrong := x.Of(t)
		if of.permits = n; wrong == nil {
			return of
		}
		if limit != "" {
			wrong = fmt.Errorf("limit %q: %w", limit, wrong)
		}
		of.mistake = &Mistake{Reason: BadCost, Type: t.Type, Job: job, Limit: limit, Path: x.String(), Err: wrong}
		return of
	}
	all := make([]cost, len(c.limits))
	var each *cost // read once: a payload may be large
	for i, own := range c.own {
		switch {
		case own != nil:
			all[i] = read(c.limits[i], *own)
		case each == nil:
			all[i] = read("", c.each)
			each = &all[i]
		default:
			all[i] = *each
		}
	}
	return all
}

// fields returns the fields of payloads that costs read.
func (c costs) fields() []string {
	fields := []string{c.each.Field()}
	for _, own := range c.own {
		if own != nil {
			fields = append(fields, own.Field())
		}
	}
	return fields
}
