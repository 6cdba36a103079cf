package plan

import (
	"fmt"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/expr"
)

// costs are what the tasks of a job cost, limit by limit.
type costs struct {
	limits []string     // of the job, in its order
	own    []*expr.Cost // of each of them; nil where it is each
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

// of returns what a task of the job costs of each limit. An error is a *Mistake,
// the first of them; the task costs nothing of the limits that it concerns.
func (c costs) of(t Task, job string) (ns []int64, err error) {
	ns = make([]int64, len(c.limits))
	mistake := func(limit string, cost expr.Cost, wrong error) {
		if err == nil {
			err = &Mistake{Reason: BadCost, Type: t.Type, Job: job, Limit: limit, Path: cost.String(), Err: wrong}
		}
	}
	each := int64(-1) // read once: a payload may be large
	for i, own := range c.own {
		switch {
		case own != nil:
			n, wrong := own.Of(t)
			if wrong != nil {
				mistake(c.limits[i], *own, fmt.Errorf("limit %q: %w", c.limits[i], wrong))
			}
			ns[i] = n
		case each < 0:
			n, wrong := c.each.Of(t)
			if wrong != nil {
				mistake("", c.each, wrong)
			}
			each, ns[i] = n, n
		default:
			ns[i] = each
		}
	}
	return ns, err
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
