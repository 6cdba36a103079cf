package asynqlimit

import "github.com/jobthrottle/jobthrottle/internal/line"

// pending are the permits that a task wants and has no answer for.
type pending struct {
	key     probeKey
	permits int64
}

// asksAgain notes that a task has lost its permits because it has no slot yet, and will ask for others.
// So nobody else is called for these.
func (c *caller) asksAgain(a *attempt, name string, cost int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pends(a, probeKey{a.queue, line.Whole(name)}, cost)
}

// pends counts the permits of a task until it has an answer. Whoever calls it has locked c.
func (c *caller) pends(a *attempt, key probeKey, cost int64) {
	if a.pending == nil {
		a.pending = &pending{key, max(cost, 1)}
		c.pending[key] += a.pending.permits
	}
}

// answered notes that the task's limiter has answered, or is not asked any more.
func (c *caller) answered(a *attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := a.pending
	if p == nil {
		return
	}
	a.pending = nil
	if c.pending[p.key] -= p.permits; c.pending[p.key] <= 0 {
		delete(c.pending, p.key)
	}
}

// pendingOf returns for how many permits called tasks of a line are here and have no answer yet.
func (c *caller) pendingOf(queue, name string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending[probeKey{queue, name}]
}
