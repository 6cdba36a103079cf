package asynqlimit

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
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

// atMost returns n, or the number of tasks in the line if it is known and lower.
func (l lined) atMost(n int) int {
	if tasks := max(l.tasks, l.last); tasks > 0 {
		return int(min(int64(n), tasks))
	}
	return n
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
// process counts as one that serves the queue before its first visit, which may come later. Of a line
// that it has begun it announces the tasks that it has parked there: until they can be called, nobody
// else gets permits for so many.
func (c *caller) announce(ctx context.Context) error {
	var sharing []line.Sharing
	c.mu.Lock()
	for key := range c.fresh {
		if len(sharing) < maxAnnounced {
			limiter, _, _ := line.Split(key.line)
			left := int64(unmeasured)
			if l := c.lineup(key.queue).lines[key.line]; l.tasks > 0 && l.cost > 0 {
				left = l.tasks * l.cost
			}
			sharing = append(sharing, line.Sharing{Limiter: limiter, Queues: []line.Demand{{
				Queue: key.queue, Weight: c.l.weightOf(key.queue), Left: left,
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
			delete(c.upSince, d.Queue)
			continue
		}
		if c.upSince[d.Queue].IsZero() {
			c.upSince[d.Queue] = time.Now()
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
	} else if _, calls := c.early[key]; calls {
		c.early[key]++
	}
	c.pends(a, pending{key: key, permits: a.wait.Cost, asking: !line.IsBlocked(key.line)})
}

// calls notes that these visits are about to call tasks: some may be here before Redis's answer is.
func (c *caller) calls(visits []*visit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.early)
	for _, k := range visits {
		if line.IsWait(k.name) {
			c.early[probeKey{c.queues[k.queue], k.name}] = 0
		}
	}
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
	early := c.early[key]
	delete(c.early, key)
	if b.Left > 0 && b.Called < capacity {
		c.spare[key] = true
	} else {
		delete(c.spare, key)
	}
	if b.Called == 0 {
		return
	}
	now, n := time.Now(), max(int(b.Called)-early, 0)
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
