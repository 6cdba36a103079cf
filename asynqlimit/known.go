package asynqlimit

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// What a process knows about the lines of its queues: what the last pass read, and what the
// process has done since. The caller owns it.

// lineup is what a process knows about the lines of a queue.
type lineup struct {
	lines map[string]lined
	read  bool // a pass has read it
	more  bool // there are other lines of limiters, or may be
}

// lined is what it knows about one line.
type lined struct {
	tasks int64     // -1: not known; 0: there is no such line
	last  int64     // if it is not known: how many there were when it was; 0: never
	cost  int64     // of each, about; 0: not known
	at    time.Time // when a job asked for it, or parked in it; zero: the last pass read it
}

const (
	// maxAnnounced is how many new lines one pass announces.
	maxAnnounced = 100
	// unmeasured stands for the length of a line that is not known.
	unmeasured = 10_000
	// askedLasts is for how long a process knows about a line that no pass has read.
	askedLasts = empty
)

// lineup returns what is known about the lines of a queue. Whoever calls it has locked c.
func (c *caller) lineup(queue string) *lineup {
	if c.known[queue] == nil {
		c.known[queue] = &lineup{lines: map[string]lined{}, more: true}
	}
	return c.known[queue]
}

// announce tells Redis about lines that this process has begun, or found when it started. So the
// process counts as one that serves the queue before its first visit, which may come later.
func (c *caller) announce(ctx context.Context) error {
	var sharing []line.Sharing
	c.mu.Lock()
	for key := range c.fresh {
		if len(sharing) < maxAnnounced {
			limiter, _, _ := line.Split(key.line)
			sharing = append(sharing, line.Sharing{Limiter: limiter, Queues: []line.Demand{{
				Queue: key.queue, Weight: c.l.weightOf(key.queue), Left: unmeasured,
			}}})
		}
	}
	clear(c.fresh)
	c.mu.Unlock()
	if len(sharing) == 0 {
		return nil
	}
	if _, err := c.l.lines.Share(ctx, sharing); err != nil {
		return fmt.Errorf("announce new lines: %w", err)
	}
	return nil
}

// learn notes which lines there were when a pass began.
func (c *caller) learn(due []line.Due, began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range due {
		if d.Known == nil { // it could not be read
			delete(c.answers, d.Queue)
			continue
		}
		if c.answers[d.Queue].IsZero() {
			c.answers[d.Queue] = time.Now()
		}
		if !c.lineup(d.Queue).read { // this process has just begun
			for name := range d.Known {
				if !line.IsBlocked(name) && len(c.fresh) < maxAnnounced {
					c.fresh[probeKey{d.Queue, name}] = true
				}
			}
		}
		c.known[d.Queue] = learned(c.lineup(d.Queue), d, began)
	}
	cut := map[string]bool{}
	for _, d := range due {
		cut[d.Queue] = d.Cut || d.Known == nil
	}
	for key, p := range c.probes {
		if c.lineup(key.queue).lines[key.line].tasks == 0 && (!cut[key.queue] || len(c.probes) > maxProbes && !p.opens()) {
			delete(c.probes, key)
		}
	}
}

// learned returns what a process knows about the lines of a queue after a pass: what the pass has
// read, and what was noted since it began. If there are more lines than a pass reads, jobs ask
// for theirs, and those answers count for a while.
func learned(before *lineup, d line.Due, began time.Time) *lineup {
	u := &lineup{lines: make(map[string]lined, len(d.Known)), read: true}
	limiters := int64(0)
	for name, tasks := range d.Known {
		u.lines[name] = lined{tasks: tasks}
		if !line.IsBlocked(name) {
			limiters++
		}
	}
	if u.more = limiters < d.All; u.more {
		began = began.Add(-askedLasts)
	}
	for name, l := range before.lines {
		if now, there := u.lines[name]; there {
			if now.tasks < 0 && l.tasks > 0 && l.at.After(began.Add(-askedLasts)) {
				now.tasks, now.at = l.tasks, l.at
			} else if now.tasks < 0 {
				now.last = max(l.tasks, l.last)
			}
			now.cost = l.cost
			u.lines[name] = now
		} else if l.at.After(began) {
			u.lines[name] = l
		}
	}
	for _, claimed := range d.Claimed {
		u.lines[claimed.Name] = lined{tasks: claimed.Tasks, cost: claimed.Cost}
	}
	return u
}

// maxProbes is for how many lines of tasks that cannot run a process remembers when it has tried
// them. Beyond that it forgets lines, and tries them as if for the first time.
const maxProbes = 10_000

// note notes how many tasks are left in a line after a visit.
func (c *caller) note(queue, name string, left int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.lineup(queue)
	l := u.lines[name]
	if l.tasks = left; left > 0 {
		u.lines[name] = l
	} else {
		delete(u.lines, name)
	}
	key := probeKey{queue, name}
	if p := c.probes[key]; p != nil && left == 0 && p.opens() {
		delete(c.probes, key) // nobody is left to follow
	}
}

// taken notes that a called task has arrived. Its limiter does not show the permits for which the
// task was called until it has answered the task.
func (c *caller) taken(a *attempt) {
	if a.wait.State != line.Called {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := probeKey{a.queue, line.Whole(a.wait.Line)}
	if e := c.onWay[key]; e != nil && e.n > 0 {
		e.n--
	}
	c.pends(a, key, a.wait.Cost)
}

// expect notes how many tasks were called for max_in_flight or for slots, where there was
// capacity for so many.
func (c *caller) expect(key probeKey, capacity int64, b line.Brought) {
	limiter, slots := line.SlotLimit(key.line)
	if !slots && c.l.fullRule(key.line) == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.Left > 0 && b.Called < capacity {
		c.spare[key] = true
	} else {
		delete(c.spare, key)
	}
	if b.Called == 0 {
		return
	}
	now, n := time.Now(), int(b.Called)
	if slots {
		c.calledAt[limiter] = now
	}
	e := c.onWay[key]
	if e == nil || now.After(e.until) {
		e = &expected{}
		c.onWay[key] = e
	}
	e.n, e.until = e.n+n, now.Add(expectedFor)
}

// forget forgets what was noted of lines that are gone.
func (c *caller) forget(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.onWay, func(_ probeKey, e *expected) bool { return now.After(e.until) })
	maps.DeleteFunc(c.spare, func(key probeKey, _ bool) bool { _, known := c.lineup(key.queue).lines[key.line]; return !known })
	maps.DeleteFunc(c.turns, func(_ probeKey, at time.Time) bool { return now.Sub(at) > turnLasts })
	maps.DeleteFunc(c.calledAt, func(_ string, at time.Time) bool { return now.Sub(at) > raiseAgain })
}

// toCome is how many of those tasks are not here yet. Other processes may have taken them.
func (c *caller) toCome(key probeKey, now time.Time) int {
	e := c.onWay[key]
	if e == nil {
		return 0
	}
	if now.After(e.until) {
		delete(c.onWay, key)
		return 0
	}
	return e.n
}

// parked notes that this process has parked a task.
func (c *caller) parked(queue string, parking line.Parking) {
	name := line.Whole(parking.Line)
	if name == "" {
		return
	}
	c.mu.Lock()
	u := c.lineup(queue)
	l := u.lines[name]
	if l.tasks == 0 && !line.IsBlocked(name) && len(c.fresh) < maxAnnounced {
		c.fresh[probeKey{queue, name}] = true
	}
	if l.tasks >= 0 {
		l.tasks++
	}
	u.lines[name] = lined{tasks: l.tasks, last: l.last, cost: max(l.cost, parking.Cost), at: time.Now()}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// ahead returns a limiter that has tasks of the queue in line, and whose next permits are for these, or which takes more
// than soonGone to serve them; empty if there is none. If this is not known of a limiter, it counts as one. Where
// tenants share a limiter, any line is ahead: tenants take turns in it. If several limiters have, it is the one that takes
// longest: in the line of another the task would only stand in the way of those who wait for that one alone.
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
