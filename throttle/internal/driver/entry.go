package driver

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
)

// Entry is a way into the one line for some limiters.
type Entry struct {
	c       *Client
	one     [1]Member
	members []Member
	last    atomic.Pointer[queue] // where it led last time
}

// Entry returns the Entry for these limiters. It makes no call, and there need not be a line
// as long as it is not used.
func (c *Client) Entry(members ...Member) *Entry {
	e := &Entry{c: c}
	if len(members) == 1 { // without a slice of its own
		e.one[0], e.members = members[0], e.one[:]
	} else {
		e.members = slices.Clone(members)
	}
	return e
}

// enter returns the queue, which the caller must leave.
func (e *Entry) enter() *queue {
	if q := e.last.Load(); q != nil && q.enter() {
		return q
	}
	key := e.members[0].Name
	if len(e.members) > 1 {
		names := make([]string, len(e.members))
		for i, m := range e.members {
			names[i] = m.Name
		}
		key = strings.Join(names, "\x00")
	}
	c := e.c
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[key]
	if q == nil {
		c.tidy()
		q = newQueue(c, e.members, c.known[key])
		delete(c.known, key)
		if c.closed {
			q.happens(line.Close)
		}
		c.queues[key] = q
	}
	for i, m := range e.members {
		q.limiters[i].give(m)
	}
	q.enter()
	e.last.Store(q)
	return q
}
