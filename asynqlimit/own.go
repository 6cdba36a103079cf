package asynqlimit

import (
	"maps"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// Lines of PerClient limiters. As long as there are few of them, each process visits them for itself, when its own permits
// are due. If only the process that claims a line visited it, a process of a large fleet would get to visit it less often
// than its permits are due. One process at a time also visits such a line like any other line, for processes that do not
// visit it for themselves.

const (
	// ownMost is how many such lines a process visits by itself: none if there are more, as there may be if the limiters
	// have keys.
	ownMost = line.MaxClaimed
	// ownPerLine is the time for each such line between two visits that are only to notice a raised rate or an ended pause.
	ownPerLine = 40 * time.Millisecond
)

// learnOwn notes which of these lines there are, after a pass. named has the lines that the pass asked for by name. Call
// learn before learnOwn.
func (c *caller) learnOwn(due []line.Due, named map[string][]string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range due {
		if d.Known == nil { // it could not be read
			continue
		}
		more := c.lineup(d.Queue).more
		maps.DeleteFunc(c.own, func(key probeKey, _ time.Time) bool {
			_, there := d.Known[key.line]
			switch {
			case key.queue != d.Queue || there:
				return false
			case more: // there may be other lines
				return !d.Paused && slices.Contains(named[d.Queue], key.line) && !d.Has(key.line)
			}
			return true
		})
		for name := range d.Known {
			key := probeKey{d.Queue, name}
			if _, known := c.own[key]; !known && !line.IsBlocked(name) && !c.l.rules.dryLine(name) && c.isPerClient(name) {
				c.own[key] = now
			}
		}
	}
	if len(c.own) > ownMost {
		clear(c.own)
	}
}

// ownDue returns the lines that this process is to visit by itself now, by queue, at most most of each.
func (c *caller) ownDue(now time.Time, most int) map[string][]string {
	due := map[string][]string{}
	for key, at := range c.own {
		if !at.After(now) && len(due[key.queue]) < most {
			due[key.queue] = append(due[key.queue], key.line)
		}
	}
	return due
}

// ownNext is how long it is until this process visits one of them by itself, most at most.
func (c *caller) ownNext(due []line.Due, now time.Time, most time.Duration) time.Duration {
	for _, d := range due {
		for key, at := range c.own {
			if key.queue == d.Queue && d.Known != nil && !d.Paused {
				most = min(most, max(at.Sub(now), busy))
			}
		}
	}
	return most
}

// ownVisited notes when this process visits a line by itself again, after it has seen how the limiter stands, and reports whether
// it does.
func (c *caller) ownVisited(k *visit, s limiterStanding, now time.Time) bool {
	key := probeKey{c.queues[k.queue], k.name}
	if _, own := c.own[key]; !own {
		return false
	}
	next := paceLasts // it is everybody's, perhaps until somebody applies the configuration
	switch {
	case s.unknown:
		next = farthest
	case s.client != "":
		next = nextVisit(s.wait, visitsApart(int64(len(c.own)), ownPerLine), false)
	}
	c.own[key] = now.Add(next)
	return true
}

// isPerClient reports whether each process has permits of its own of the limiter of a line: as Redis said last, or else as the
// configuration says. Lines that tenants share do not count: their tenants take turns in the visits of all. Whoever calls it
// has locked c.
func (c *caller) isPerClient(name string) bool {
	limiter, _, shared := line.Split(name)
	if shared {
		return false
	}
	if p, read := c.paces[limiter]; read && p.rate.Permits > 0 {
		return p.rate.Type == throttle.PerClient
	}
	if !c.l.rules.perClient {
		return false
	}
	l := c.l.rules.limitOf(limiter)
	return l != nil && l.Rate.Type == throttle.PerClient
}
