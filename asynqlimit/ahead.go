package asynqlimit

import (
	"context"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// What a task that comes now learns from what its process knows of the lines: whether it stands behind one, and for how long.

// ahead returns the limiter whose line is ahead of a task that comes now, or "" if no line is ahead. A line is ahead if the
// next permits of its limiter are for the tasks in it, or if the limiter takes more than soonGone to serve it. If this is
// not known, the line counts as ahead. Any line that tenants share is ahead, because tenants take turns in it. If several
// lines are ahead, ahead returns the limiter that takes longest to serve its line. In the line of another limiter the task
// would only stand in the way of tasks that wait for that limiter alone.
func (c *caller) ahead(ctx context.Context, queue string, needs needs) (string, error) {
	lines := make([]string, len(needs.lines))
	for i, name := range needs.lines {
		lines[i] = line.Whole(name)
	}
	if err := c.askFor(ctx, queue, lines); err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	u, now := c.lineup(queue), time.Now()
	limiter, most := "", time.Duration(-1)
	for i, name := range needs.limiters {
		takes, isAhead := c.takes(u.lines[lines[i]], name, needs.draws[i], needs.costs[i], now)
		if isAhead && takes > most {
			limiter, most = name, takes
		}
	}
	return limiter, nil
}

// takes is about how long the line of a limiter takes to serve the tasks in it, and whether it is ahead of a task that
// comes now. Whoever calls it has locked c.
func (c *caller) takes(l lined, limiter string, draw plan.Draw, cost int64, now time.Time) (d time.Duration, isAhead bool) {
	tasks := l.tasks
	switch {
	case tasks == 0:
		return 0, false
	case tasks < 0 && l.last > 0:
		tasks = l.last
	case tasks < 0:
		tasks = unmeasured
	}
	permits := tasks * max(l.cost, cost)
	p, known := c.paceNow(limiter, now)
	if !known {
		return timeFor(permits, draw.Rate), true
	}
	d = p.takes(permits, now)
	switch {
	case l.tasks < 0, draw.Tenant != "", d > soonGone:
		return d, true
	case p.has(permits+cost, now):
		return d, false
	}
	if now.Sub(p.read) > lead {
		c.wanted[limiter] = true
	}
	return d, true
}

// askFor finds out the lengths of lines that no pass has read, if the queue has more lines than a
// pass reads.
func (c *caller) askFor(ctx context.Context, queue string, lines []string) error {
	var names []string
	c.mu.Lock()
	if u := c.lineup(queue); u.more {
		for _, name := range lines {
			if _, there := u.lines[name]; !there {
				names = append(names, name)
			}
		}
	}
	c.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	lengths, err := c.l.lines.Lengths(ctx, []string{queue}, names)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.lineup(queue)
	for _, name := range names {
		if _, there := u.lines[name]; !there {
			u.lines[name] = lined{tasks: lengths[name][0].Waiting, at: time.Now()}
		}
	}
	return nil
}

// lined reports whether a queue has tasks in that line.
func (c *caller) lined(queue, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lineup(queue).lines[name].tasks != 0
}

// queuesFor reports whether a task that comes now has to stand behind a line for max_in_flight or
// for slots. It does not have to if there is capacity and those in the line parked too recently
// to be called.
func (c *caller) queuesFor(queue, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lineup(queue).lines[name].tasks != 0 && !c.spare[probeKey{queue, name}]
}

// estimateWait is about how long a line takes to serve the tasks in it. If the rate of its
// limiter is not known, it uses the rate of the configuration.
func (c *caller) estimateWait(queue, name string, rate throttle.Rate) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lineup(queue).lines[name]
	permits, now := max(l.tasks, 1)*max(l.cost, 1), time.Now()
	limiter, _, _ := line.Split(name)
	if p, ok := c.paceNow(limiter, now); ok {
		return p.takes(permits, now)
	}
	return timeFor(permits, rate)
}
