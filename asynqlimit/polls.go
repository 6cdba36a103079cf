package asynqlimit

import (
	"cmp"
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

// toCome is how many called tasks of all queues are not here yet.
func (g *gate) toCome() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for queue := range g.onWay {
		n += g.calledTo(queue, now)
	}
	return n
}

// calledTo is how many called tasks of the queue are not here yet. Whoever calls it has locked g.
func (g *gate) calledTo(queue string, now time.Time) int {
	if !g.expects(queue, now) {
		return 0
	}
	return g.onWay[queue].n
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

// inTurn makes s a position of the queue that comes next. That is the queue that was chosen when the slot
// became free. If none was chosen, and s had to wait for the slot, inTurn draws one of the queues that do
// not rest now. It returns false if the slot is for tasks in line after all.
func (g *gate) inTurn(s *position, waited bool) bool {
	queue := s.queue
	if len(g.turns) > 0 {
		queue = g.turns[0]
		g.turns, s.inTurn = g.turns[1:], true
		if g.rests[queue].After(s.since) { // it has turned out to be empty
			drawn, ofLine := g.turn(s.since)
			if ofLine {
				return false
			}
			queue = drawn
		} else if g.size.strict { // one that comes before it may not rest any more
			queue = g.draw(nil, s.since)
		}
	} else if waited {
		queue = g.draw(nil, s.since)
	}
	s.queue = cmp.Or(queue, s.queue)
	return true
}

// turn chooses the queue for a slot that a task has given back. ofLine says that the slot is for tasks in line
// of that queue, and is left to them for a while. ofLine is true only where handlers take long: where they do
// not, tasks in line are called before slots are free.
func (g *gate) turn(now time.Time) (queue string, ofLine bool) {
	var lines []string
	if g.within(lead) == 0 {
		lines = g.lines
	}
	queue = g.draw(lines, now)
	if ofLine = slices.Contains(lines, queue); ofLine {
		g.lefts = append(g.leftToLines(now), now.Add(leftFor))
		g.tell()
	}
	return queue, ofLine
}

// leftToLines returns until when free slots are left to tasks of lines, one by one.
func (g *gate) leftToLines(now time.Time) []time.Time {
	for len(g.lefts) > 0 && !now.Before(g.lefts[0]) {
		g.lefts = g.lefts[1:]
	}
	return g.lefts
}

// draw returns one of the queues that do not rest or have such lines: the one with most weight if the server
// is strict, else one by chance, by their weights. It is empty if there is none.
func (g *gate) draw(lines []string, now time.Time) (drawn string) {
	best, all := 0, 0
	for queue := range g.size.weights {
		weight := max(g.size.weights[queue], 1)
		if g.rests[queue].After(now) && !slices.Contains(lines, queue) || g.size.strict && weight < best {
			continue
		}
		if g.size.strict && weight > best {
			all = 0
		}
		best = max(best, weight)
		if all += weight; rand.N(all) < weight {
			drawn = queue
		}
	}
	return drawn
}

// order returns the numbers of queues in the order in which they are served: those with most weight first if
// the server is strict, else drawn by their weights.
func (g *gate) order(queues []string) []int {
	numbers, at := make([]int, len(queues)), make([]float64, len(queues))
	for i, queue := range queues {
		weight := float64(max(g.size.weights[queue], 1))
		numbers[i], at[i] = i, rand.ExpFloat64()/weight
		if g.size.strict {
			at[i] = rand.Float64() - weight
		}
	}
	slices.SortFunc(numbers, func(a, b int) int { return cmp.Compare(at[a], at[b]) })
	return numbers
}

// leftFor is how long a slot is left to tasks of lines. To call one, and to take it, takes some
// milliseconds, unless the machine is busy.
const leftFor = 50 * time.Millisecond

// lineDue notes that a task of a line of the queue can be called: one that held what it waits for has ended.
func (g *gate) lineDue(queue string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.lines, queue) {
		g.lines = append(g.lines, queue)
	}
}

// linesDue notes the queues with lines of which more tasks could be called, if there were capacity. If there
// was, and none was called, slots are not left to them any longer.
func (g *gate) linesDue(queues []string, none bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lines = queues
	if none && len(g.leftToLines(time.Now())) > 0 {
		g.lefts = nil
		g.announce()
	}
}
