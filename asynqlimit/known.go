package asynqlimit

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// What a process knows of the lines of its queues: what the last pass read, and
// what it has done since. It is the caller's.

const (
	// maxAnnounced is how many new lines one pass announces.
	maxAnnounced = 100
	// unmeasured stands for the length of a line that is not known.
	unmeasured = 10_000
)

// announce tells of lines that this process has begun, or found when it started:
// that it serves the queue counts before its first look, which may come later.
func (c *caller) announce(ctx context.Context) error {
	var sharing []line.Sharing
	c.mu.Lock()
	for key := range c.fresh {
		if len(sharing) < maxAnnounced {
			sharing = append(sharing, line.Sharing{Limiter: key.line, Queues: []line.Demand{{
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

// learn notes which lines there are.
func (c *caller) learn(due []line.Due) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range due {
		if d.Known == nil { // it could not be read
			continue
		}
		if c.known[d.Queue] == nil { // this process has just begun
			for name := range d.Known {
				if !line.IsBlocked(name) && len(c.fresh) < maxAnnounced {
					c.fresh[probeKey{d.Queue, name}] = true
				}
			}
		}
		c.known[d.Queue] = maps.Clone(d.Known)
	}
	cut := map[string]bool{}
	for _, d := range due {
		cut[d.Queue] = d.Cut || d.Known == nil
	}
	for key, p := range c.probes {
		if _, there := c.known[key.queue][key.line]; !there && (!cut[key.queue] || len(c.probes) > maxProbes && !p.opens()) {
			delete(c.probes, key)
		}
	}
}

// maxProbes is how many lines of tasks that cannot run a process remembers about
// when it has tried them. It begins anew with those beyond.
const maxProbes = 10_000

func (c *caller) note(queue, name string, left int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if left == 0 {
		delete(c.known[queue], name)
	} else if c.known[queue] != nil {
		c.known[queue][name] = left
	}
}

// taken notes a task that was called and has arrived: what it was called for shows
// at its limiter when that has answered.
func (c *caller) taken(a *attempt) {
	if a.wait.State != line.Called {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := probeKey{a.queue, a.wait.Line}
	if e := c.onWay[key]; e != nil && e.n > 0 {
		e.n--
	}
	if !a.pending {
		a.pending = true
		c.pending[key] += max(a.wait.Cost, 1)
	}
}

// expect notes that tasks were called for places of max_in_flight, which are this
// process's own.
func (c *caller) expect(key probeKey, n int) {
	if n == 0 || c.l.fullRule(key.line) == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	e := c.onWay[key]
	if e == nil || now.After(e.until) {
		e = &expected{}
		c.onWay[key] = e
	}
	e.n, e.until = e.n+n, now.Add(expectedFor)
}

// toCome is how many of those are not here yet. Others may have them.
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

// answered notes that its limiter has answered, or is not asked any more.
func (c *caller) answered(a *attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !a.pending {
		return
	}
	a.pending = false
	key := probeKey{a.queue, a.wait.Line}
	if c.pending[key] -= max(a.wait.Cost, 1); c.pending[key] <= 0 {
		delete(c.pending, key)
	}
}

// pendingOf is for how many permits tasks of a line are here that have no answer yet.
func (c *caller) pendingOf(queue, name string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending[probeKey{queue, name}]
}

// parked notes a task that this process has parked.
func (c *caller) parked(queue string, place line.Place) {
	name := place.Line
	if name == "" {
		return
	}
	c.mu.Lock()
	if c.known[queue] == nil {
		c.known[queue] = map[string]int64{}
	}
	n, ok := c.known[queue][name]
	if !ok && !line.IsBlocked(name) {
		if len(c.fresh) < maxAnnounced {
			c.fresh[probeKey{queue, name}] = true
		}
	}
	if !ok || n >= 0 {
		c.known[queue][name] = n + 1
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// ahead returns a limiter that has tasks of the queue in line, and that takes
// more than a moment to serve them; empty if none does.
func (c *caller) ahead(queue string, limiters []string, rates []throttle.Rate) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, name := range limiters {
		n, lined := c.known[queue][name]
		if lined && (n < 0 || takes(n, rates[i]) > soonGone) {
			return name
		}
	}
	return ""
}

// lined says whether a queue has tasks in that line.
func (c *caller) lined(queue, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[queue][name] != 0
}

// outlook is about how long a line takes to serve those who are in it.
func (c *caller) outlook(queue, name string, rate throttle.Rate) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return takes(max(c.known[queue][name], 1), rate)
}

func takes(n int64, rate throttle.Rate) time.Duration {
	return time.Duration(float64(n) / float64(max(rate.Permits, 1)) * float64(rate.Interval))
}
