package asynqlimit

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// gate owns the slots and the room of one server. A slot is for a handler that
// runs; the room is for tasks that were taken from their queue and wait. Whoever
// has neither is not taken from its queue: other processes can have it.
type gate struct {
	mu      sync.Mutex
	size    gateSize
	used    int            // slots
	waiting int            // tasks in the room
	of      map[string]int // of those, by limiter
	onWay   map[string]*expected
	asking  []*position // in the room, and want a slot
	idlers  []*position // in slots, and wait: the room is full
	lasts   time.Duration
	empties int           // looks that found their queue empty, one after the other
	rest    time.Time     // until when no queue is looked at, since all were empty
	full    bool          // there were no places when they were last counted
	freed   chan struct{} // there are some again
	passing bool          // nobody waits any more: the server drains
	changed chan struct{} // closed when somebody may be admitted
}

// gateSize is how many may run and wait at a time, and who comes first.
type gateSize struct {
	slots, room int
	weights     map[string]int // by queue
	strict      bool
	every       time.Duration // about how often empty queues are looked at
}

// expected are tasks that this process has called to a queue.
type expected struct {
	n         int
	at, until time.Time
}

// expectedFor is how long a called task may take to arrive.
const expectedFor = 500 * time.Millisecond

func newGate(size gateSize) *gate {
	return &gate{size: size, of: map[string]int{}, onWay: map[string]*expected{}, freed: make(chan struct{}, 1), changed: make(chan struct{})}
}

// admit waits until a task may be taken from the queue, for hold at most: there is
// a slot for it, or there is room, and this process has called a task of that
// queue. The slots go to those who wait in the room first. If another queue may be
// asked, but not this one, it says so at once. When all queues were empty it rests,
// as asynq does, but for tasks that are called.
func (g *gate) admit(queue string, hold time.Duration) (*position, bool) {
	timer := time.NewTimer(hold)
	defer timer.Stop()
	for {
		g.mu.Lock()
		if g.passing {
			g.mu.Unlock()
			return nil, false
		}
		s := &position{g: g, queue: queue, since: time.Now()}
		free := g.used < g.size.slots && len(g.asking) == 0
		expects, others := g.expects(queue, s.since), false
		for q := range g.onWay {
			others = others || g.expects(q, s.since)
		}
		room := g.waiting < g.size.room
		rests := g.rest.Sub(s.since)
		if expects || others {
			rests = 0
		}
		switch {
		case rests > 0:
			changed := g.changed
			g.mu.Unlock()
			resting := time.NewTimer(rests)
			select {
			case <-timer.C:
				resting.Stop()
				return nil, false
			case <-resting.C:
			case <-changed:
				resting.Stop()
			}
			continue
		case free:
			g.occupy(s)
		case expects && room:
			g.enter(s, nil)
		default:
			changed := g.changed
			g.mu.Unlock()
			if others && room {
				return nil, false
			}
			select {
			case <-timer.C:
				return nil, false
			case <-changed:
				continue
			}
		}
		g.mu.Unlock()
		return s, true
	}
}

// more gives seats to further tasks of the queue, at most so many: those that can be
// had at once.
func (g *gate) more(queue string, most int) (positions []*position) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	called := 0 // that are not here, beside the one that was admitted
	if g.expects(queue, now) {
		called = g.onWay[queue].n - 1
	}
	for len(positions) < most && !g.passing {
		s := &position{g: g, queue: queue, since: now}
		switch {
		case g.used < g.size.slots && len(g.asking) == 0:
			g.occupy(s)
		case called > len(positions) && g.waiting < g.size.room:
			g.enter(s, nil)
		default:
			return positions
		}
		positions = append(positions, s)
	}
	return positions
}

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

// arrived notes that a task of the queue is here, by a look that began then, and
// how it had waited. Called tasks are at the head of their queue: if another comes,
// others have taken those that were called before.
func (g *gate) arrived(queue string, waited line.State, began time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.empties = 0
	e := g.onWay[queue]
	switch {
	case e == nil || e.n == 0 || waited == line.Back || waited == line.Untried:
	case waited == line.Called:
		e.n--
	case e.at.Before(began):
		e.n = 0
	}
}

// empty notes that a look that began then has found the queue empty: others have
// taken what was called before. After such a look at each queue the gate rests.
func (g *gate) empty(queue string, began time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.onWay[queue]; e != nil && e.at.Before(began) {
		e.n = 0
	}
	if g.empties++; g.empties >= len(g.size.weights) && g.size.every > 0 {
		g.empties, g.rest = 0, time.Now().Add(g.size.every/2+rand.N(g.size.every))
	}
}

// typically is how long handlers are taken to run before one has.
const typically = 50 * time.Millisecond

// places is how many tasks this server has a place for that arrive within lead:
// those slots that are free, or will be by then as far as one can tell, unless
// others wait for them already. If there is none, freed says when there is again.
func (g *gate) capacity(lead time.Duration) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	lasts := g.lasts
	if lasts == 0 {
		lasts = typically
	}
	free := g.size.slots - g.used
	soon := free + int(float64(g.size.slots)*float64(lead)/float64(max(lasts, time.Millisecond)))
	n := max(min(soon-g.waiting, free+g.size.room-g.waiting), 0)
	g.full = n == 0
	return n
}

// occupy gives a seat a slot.
func (g *gate) occupy(s *position) {
	g.used++
	s.slot, s.began = true, time.Now()
}

// vacate takes the slot back, for whoever wants it.
func (g *gate) vacate(s *position) {
	if !s.slot {
		return
	}
	s.slot = false
	g.used--
	g.pass()
}

// enter puts a seat in the room.
func (g *gate) enter(s *position, limiters []string) {
	s.waits, s.limiters = true, limiters
	g.waiting++
	for _, name := range limiters {
		g.of[name]++
	}
}

func (g *gate) exit(s *position) {
	if !s.waits {
		return
	}
	for _, name := range s.limiters {
		if g.of[name]--; g.of[name] == 0 {
			delete(g.of, name)
		}
	}
	s.waits, s.limiters = false, nil
	g.waiting--
}

// pass gives free slots to those who ask, and lets others be admitted.
func (g *gate) pass() {
	now := time.Now()
	for g.used < g.size.slots && len(g.asking) > 0 {
		best := 0
		for i := range g.asking {
			if g.before(g.asking[i], g.asking[best], now) {
				best = i
			}
		}
		s := g.asking[best]
		g.asking = slices.Delete(g.asking, best, best+1)
		g.exit(s)
		g.occupy(s)
		close(s.given)
	}
	if g.full && g.used < g.size.slots {
		g.full = false
		select {
		case g.freed <- struct{}{}:
		default:
		}
	}
	g.announce()
}

func (g *gate) announce() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// before says which of two seats gets a slot: that of the heavier queue if the
// server is strict, else the one whose wait, times the weight of its queue, is
// longer.
func (g *gate) before(a, b *position, now time.Time) bool {
	wa, wb := max(g.size.weights[a.queue], 1), max(g.size.weights[b.queue], 1)
	if g.size.strict && wa != wb {
		return wa > wb
	}
	return now.Sub(a.since)*time.Duration(wa) > now.Sub(b.since)*time.Duration(wb)
}

// close admits nobody any more.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passing = true
	g.announce()
}

// load is how many slots are in use and how many tasks wait.
func (g *gate) load() (used, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used, g.waiting
}
