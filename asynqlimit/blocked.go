package asynqlimit

import (
	"math/rand/v2"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// Lines without a limiter.

// blocked returns visits of lines without a limiter. It visits a line of tasks that cannot run as
// things stand if some of the tasks are to be tried. It visits a line for max_in_flight or for
// slots if some are free. If it leaves out a line because there is no capacity, it notes the queue
// in short.
//
// If several queues have lines for the same slots, those slots are for the queue that comes first, as far as it has tasks
// in line. They are for the next, too, if its last visit could not call enough, or if its tasks have an order: the one that
// comes first there may be elsewhere.
//
// Lines for max_in_flight and for slots share the capacity, because each of them may have free
// slots. Lines whose last visit could not call enough tasks share as much capacity again, so that
// the other lines do not wait for them.
func (c *caller) blocked(due []line.Due, capacity int, short map[string]bool) (visits []*visit) {
	rest := max(capacity-c.l.gate.toCome(), 0)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	forSlots, forSpare, given := capacity, capacity, map[string]int{} // given: to queues that come first, by line
	for _, i := range c.l.gate.order(c.queues[:len(due)]) {
		d := due[i]
		if d.Paused {
			continue
		}
		for name := range d.Known {
			if key := (probeKey{d.Queue, name}); line.IsBlocked(name) && c.probes[key] == nil {
				c.probes[key] = &probe{}
			}
		}
		for key, p := range c.probes {
			_, known := d.Known[key.line]
			if key.queue != d.Queue || !known && !p.opens() {
				continue
			}
			n, k := p.allowance(now, &c.tries), &visit{queue: i, name: key.line, next: probeFirst}
			limiter, slots := line.SlotLimit(key.line)
			if free, waits := c.vacant(key, now); waits {
				of := &forSlots
				if c.spare[key] { // its last visit could not call so many
					of = &forSpare
				}
				free.now, free.soon = free.now-given[key.line], free.soon-given[key.line]
				n = max(min(free.soon, max(free.now, 0)+c.l.gate.roomFor(key.line), *of), 0)
				k.short, k.inOrder, k.oneByOne = free.now > *of, true, slots && c.l.rules.ordered(limiter)
				if known && !c.spare[key] && !k.oneByOne {
					given[key.line] += c.lineup(d.Queue).lines[key.line].atMost(n)
				}
				if *of -= n; n == 0 {
					delete(c.spare, key) // those who come do not overtake it
				}
			} else if k.opened = p.batch > 1; k.opened {
				k.short = n > rest
				n = min(n, rest)
				p.left, rest = p.left-n, rest-n
			} else { // the tasks at the head may never be able to run
				k.from = rand.Float64()
			}
			switch {
			case n > 0:
				k.permits = int64(n)
				visits = append(visits, k)
			case k.short:
				short[d.Queue] = true
			}
		}
	}
	return visits
}

// tried notes how many tasks a visit to a line of tasks that could not run has called.
func (c *caller) tried(queue string, k *visit, b line.Brought) {
	if !line.IsBlocked(k.name) || k.inOrder || b.Left == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.probes[probeKey{queue, k.name}]; p != nil {
		p.called(b.Called, time.Now())
	}
}

// saw notes whether a task that was called from such a line could run.
func (c *caller) saw(queue, name string, passed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.probes[probeKey{queue, name}]; p != nil {
		p.saw(passed, time.Now())
	}
}
