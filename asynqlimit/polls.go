package asynqlimit

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// What the gate knows about the queues: which called tasks are to come, which queues were empty, and whose
// turn it is.

// expected are tasks that this process has called to a queue.
type expected struct {
	n         int
	at, until time.Time
}

// expectedFor is how long a called task may take to arrive.
const expectedFor = 500 * time.Millisecond

// expects reports whether this process has called tasks of the queue that are not here yet. Whoever
// calls it has locked g.
func (g *gate) expects(queue string, now time.Time) bool {
	e := g.onWay[queue]
	return e != nil && e.n > 0 && now.Before(e.until)
}

// expect notes that n tasks of the queue were called.
func (g *gate) expect(queue string, n int) {
	if n == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	e := g.onWay[queue]
	if e == nil || now.After(e.until) {
		e = &expected{}
		g.onWay[queue] = e
	}
	e.n, e.at, e.until = e.n+n, now, now.Add(expectedFor)
	g.announce()
}

// arrived notes that a task of the queue is here, how it had waited, and when the poll that took
// it began. Called tasks are at the head of their queue: if another task comes, other processes
// have taken those that were called before.
func (g *gate) arrived(queue string, waited line.State, began time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.empties)
	delete(g.rests, queue)
	e := g.onWay[queue]
	switch {
	case e == nil || e.n == 0 || waited == line.Back || waited == line.Untried:
	case waited == line.Called:
		e.n--
	case e.at.Before(began):
		e.n = 0
	}
}

// restsBriefly is how long an empty queue rests while others have tasks.
const restsBriefly = 10 * time.Millisecond

// empty notes that a poll that began then has found the queue empty: other processes have taken
// what was called before. The queue rests briefly. When each queue was polled without success, all
// rest as asynq does.
func (g *gate) empty(queue string, began time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.onWay[queue]; e != nil && e.at.Before(began) {
		e.n = 0
	}
	if g.size.every <= 0 {
		return
	}
	now := time.Now()
	g.empties[queue], g.rests[queue] = true, now.Add(min(restsBriefly, g.size.every))
	if len(g.empties) >= len(g.size.weights) {
		clear(g.empties)
		until := now.Add(g.size.every/2 + rand.N(g.size.every))
		for q := range g.size.weights {
			g.rests[q] = until
		}
	}
}

// leave makes a queue that may have tasks rest for so long.
func (g *gate) leave(queue string, rests time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.empties)
	g.rests[queue] = time.Now().Add(rests)
}

// resting returns for how long the queue rests, and for how long all queues do.
func (g *gate) resting(queue string, now time.Time) (this, all time.Duration) {
	this = g.rests[queue].Sub(now)
	all = max(this, 0)
	for q := range g.size.weights {
		all = min(all, max(g.rests[q].Sub(now), 0))
	}
	return this, all
}

// turn returns the queue whose turn it is, among those that do not rest and those with lines: the one
// with most weight if the server is strict, else one by chance, by their weights. ofLine says that it is
// the turn of its lines. If there is none, it is queue.
func (g *gate) turn(queue string, lines []string, now time.Time) (_ string, ofLine bool) {
	best, all := 0, 0
	choose := func(q string, line bool) {
		weight := max(g.size.weights[q], 1)
		if g.size.strict && weight != best {
			if weight < best {
				return
			}
			all = 0
		}
		best = max(best, weight)
		if all += weight; rand.N(all) < weight {
			queue, ofLine = q, line
		}
	}
	for _, q := range slices.Sorted(maps.Keys(g.size.weights)) {
		if line := slices.Contains(lines, q); line || !g.rests[q].After(now) {
			choose(q, line)
		}
	}
	return queue, ofLine
}

// leftFor is how long a slot is left to tasks of lines. To call one, and to take it, takes some
// milliseconds, unless the machine is busy.
const leftFor = 50 * time.Millisecond

// linesDue notes the queues with lines of which more tasks could be called, if there were capacity. If there
// was, and none was called, slots are not left to them any longer.
func (g *gate) linesDue(queues []string, none bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lines = queues
	if none && time.Until(g.left) > 0 {
		g.left = time.Time{}
		g.announce()
	}
}
