package asynqlimit

import (
	"slices"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// pending are the permits that a task wants and has no answer for.
type pending struct {
	key     probeKey
	permits int64
	asking  bool // Redis counts them, too, until it is told of the answer
}

// asksAgain notes that a task has lost its permits because it has no slot yet, and will ask for others.
// So this process calls nobody else for these. Others do not know.
func (c *caller) asksAgain(a *attempt, name string, cost int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pends(a, pending{key: probeKey{a.queue, line.Whole(name)}, permits: cost})
}

// movesOn reports whether a called task parks in another line than the one from which it was called: it has to wait for something
// else, and does not take the permits for which it was called.
func (j *job) movesOn() bool {
	name := j.a.parksIn()
	return j.a.called && !j.held && name != "" && name != j.a.wait.Line
}

// leavesOver notes that a called task does not take the permits for which it was called. So the next pass visits its line,
// whether the line's time has come or not.
func (c *caller) leavesOver(queue string, came line.Wait) {
	if came.State != line.Called || line.IsBlocked(came.Line) {
		return
	}
	c.visitSoon(queue, came.Line)
}

// visitSoon makes the next pass visit lines, whether their time has come or not: permits have been given back.
func (c *caller) visitSoon(queue string, lines ...string) {
	c.mu.Lock()
	for _, name := range lines {
		c.over[probeKey{queue, line.Whole(name)}] = true
	}
	c.mu.Unlock()
	select {
	case c.freed <- struct{}{}:
	default:
	}
}

// visitsAlso adds to lines, by queue, those whose called tasks have left permits over.
func (c *caller) visitsAlso(lines map[string][]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.over {
		if !slices.Contains(lines[key.queue], key.line) {
			lines[key.queue] = append(lines[key.queue], key.line)
		}
	}
	clear(c.over)
}

// pends counts the permits of a task until it has an answer. Whoever calls it has locked c.
func (c *caller) pends(a *attempt, p pending) {
	if a.pending == nil {
		p.permits = max(p.permits, 1)
		a.pending = &p
		c.pending[p.key] += p.permits
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
	if p.asking {
		c.l.rooms.of(a).answers.add(line.Answered{Line: p.key.line, ID: a.id, Cost: a.wait.Cost})
	}
}

// pendingOf returns for how many permits called tasks of a line are here and have no answer yet.
func (c *caller) pendingOf(queue, name string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending[probeKey{queue, name}]
}
