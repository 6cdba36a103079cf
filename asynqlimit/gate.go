package asynqlimit

import (
	"slices"
	"sync"
	"time"
)

// gate owns the slots and the room of one server. A slot is for a handler that runs; the room is
// for tasks that were taken from their queue and wait. A task for which there is neither is not
// taken from its queue: other processes can take it.
type gate struct {
	mu      sync.Mutex
	size    gateSize
	used    int            // slots
	polling int            // those of them to which no task has come yet
	waiting int            // tasks in the room
	due     int            // those of them that want a slot soon
	compete int            // those of them that came straight from their queue to compete for a slot
	moved   time.Time      // when a slot was last taken or given back
	of      map[string]int // tasks in the room, by limiter
	onWay   map[string]*expected
	asking  []*position // they are in the room and want a slot
	idlers  []*position // they are in slots and wait, because the room is full
	lasts   time.Duration
	empties map[string]bool      // queues that were empty, since the last poll that found one that was not
	rests   map[string]time.Time // by queue, until when it is not polled
	full    bool                 // there was no capacity when it was last counted
	freed   chan struct{}        // there is capacity again
	lines   []string             // queues with lines of which more tasks could be called, if there were capacity
	turns   []string             // the queues whose turn it is, for free slots that tasks had
	lefts   []time.Time          // until when other free slots that tasks had are left to tasks of lines
	passing bool                 // nobody waits any more: the server drains
	changed chan struct{}        // closed when somebody may be admitted
}

// gateSize is how many tasks may run and wait at a time, and which come first.
type gateSize struct {
	slots, room int
	notCalled   int            // how many of those in the room may be tasks that were not called
	weights     map[string]int // by queue
	strict      bool
	every       time.Duration // about how often empty queues are polled
}

func newGate(size gateSize) *gate {
	return &gate{size: size, of: map[string]int{}, onWay: map[string]*expected{}, empties: map[string]bool{}, rests: map[string]time.Time{}, freed: make(chan struct{}, 1), changed: make(chan struct{})}
}

// admit waits, for hold at most, until a task may be taken from the queue. A task may be taken if there
// is a slot for it, or if there is room and this process has called a task of that queue. While called
// tasks in the room ask for slots, other tasks may come into the room, too, and compete with them. If a
// task may be taken from another queue but not from this one, admit returns false at once. After a queue
// was empty it rests, except for called tasks.
//
// A slot that is given back may be left to called tasks, for a short time. Otherwise it is for the queue
// that comes next, and the position may be for another queue than this one.
func (g *gate) admit(queue string, hold time.Duration) (*position, bool) {
	timer := time.NewTimer(hold)
	defer timer.Stop()
	for waited := false; ; waited = true {
		g.mu.Lock()
		if g.passing {
			g.mu.Unlock()
			return nil, false
		}
		s := &position{g: g, queue: queue, since: time.Now()}
		unasked := g.used < g.size.slots && len(g.asking) == 0
		room := g.waiting < g.size.room
		expects, others := g.expects(queue, s.since), false
		left := g.leftToLines(s.since)
		free := unasked && (expects || len(left) < g.size.slots-g.used)
		for q := range g.size.weights {
			others = others || q != queue && (g.expects(q, s.since) && (room || unasked) || room && g.competes(q) && !g.rests[q].After(s.since))
		}
		rests, all := g.resting(queue, s.since)
		switch {
		case rests > 0 && !expects && (all == 0 || others):
			g.mu.Unlock()
			return nil, false
		case rests > 0 && !expects:
			changed := g.changed
			g.mu.Unlock()
			resting := time.NewTimer(all)
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
			if !expects && !g.inTurn(s, waited) {
				g.mu.Unlock()
				continue
			}
			g.occupy(s, expects)
		case expects && room:
			s.due = true
			g.enter(s, nil)
		case room && g.competes(queue):
			s.competes = true
			g.enter(s, nil)
		default:
			changed, wait := g.changed, hold
			if unasked {
				wait = left[0].Sub(s.since)
			}
			g.mu.Unlock()
			if others {
				return nil, false
			}
			over := time.NewTimer(wait)
			select {
			case <-timer.C:
				over.Stop()
				return nil, false
			case <-over.C:
			case <-changed:
				over.Stop()
			}
			continue
		}
		g.mu.Unlock()
		return s, true
	}
}

// more gives positions to further tasks of the queue, as many as are free at once: to want tasks, or to more if
// this process has called more just now, but to no more than most. Tasks that it called earlier do not count,
// because other processes may have taken some of them.
func (g *gate) more(queue string, want, most int) (positions []*position) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	called := g.calledTo(queue, now) - 1 // besides the one that was admitted
	if e := g.onWay[queue]; called > 0 && now.Sub(e.at) <= leftFor {
		want = max(want, called)
	}
	most = min(want, most)
	for len(positions) < most && !g.passing {
		s := &position{g: g, queue: queue, since: now}
		switch {
		case len(g.asking) == 0 && g.used < g.size.slots && (called > len(positions) || len(g.leftToLines(now)) < g.size.slots-g.used):
			g.occupy(s, called > len(positions))
		case called > len(positions) && g.waiting < g.size.room:
			s.due = true
			g.enter(s, nil)
		default:
			return positions
		}
		positions = append(positions, s)
	}
	return positions
}

// typically stands for how long handlers run until one has run.
const typically = 50 * time.Millisecond

// competes reports whether a task of the queue, which was not called, is to wait in the room for the
// next free slot. Without such tasks, all slots would go to called tasks whenever more called tasks
// come than slots get free. Competing tasks take at most half of the room, and are at most half as many
// as the slots that are probably free soon. So tasks are called in any case, and the rest of the queue
// is left to other processes.
func (g *gate) competes(queue string) bool {
	if g.compete >= (min(g.size.slots, g.size.room, g.within(lead))+1)/2 {
		return false
	}
	return slices.ContainsFunc(g.asking, func(s *position) bool {
		return s.called && (!g.size.strict || max(g.size.weights[queue], 1) >= max(g.size.weights[s.queue], 1))
	})
}

// capacity returns how many tasks that arrive within lead this server can take. It counts the slots
// that are free or will probably be free by then, and subtracts the tasks that wait for them already.
// It returns at least the number of free slots that no task wants soon. If it returns 0, freed gets a
// value when that changes.
func (g *gate) capacity(lead time.Duration) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	free := g.size.slots - g.used
	room := min(g.size.room, max(g.size.slots, g.within(burst)))
	n := max(min(free+g.within(lead), free+room)-g.waiting, free-g.due, 0)
	g.full = n == 0
	return n
}

// burst is about how long the permits of a burst are good for. What waits for it here begins in time
// if there is a slot for it by then.
const burst = 10 * time.Millisecond

// within is how many handlers this server probably ends within d while all slots are in use. Handlers
// last as long as of late, or longer if for longer than that none has begun or ended.
func (g *gate) within(d time.Duration) int {
	lasts := g.lasts
	if lasts == 0 {
		lasts = typically
	}
	if g.used-len(g.idlers) >= g.size.slots { // those that idle leave their slots at once
		lasts = max(lasts, time.Since(g.moved))
	}
	return int(float64(g.size.slots) * float64(d) / float64(max(lasts, time.Millisecond)))
}

// occupy gives the task at s, which may be one that was called, a slot.
func (g *gate) occupy(s *position, called bool) {
	g.used++
	if !s.taken {
		g.polling++
	}
	g.moved = time.Now()
	s.slot = true
	if left := g.leftToLines(g.moved); called && len(left) > 0 {
		g.lefts = left[1:]
	}
	for free := g.size.slots - g.used; len(g.turns)+len(g.lefts) > free; {
		if len(g.turns) > 0 {
			g.turns, s.inTurn = g.turns[1:], true
		} else {
			g.lefts = g.lefts[1:]
		}
	}
}

// vacate takes the slot back, if it has one, and passes on what s has given back.
func (g *gate) vacate(s *position) {
	ended := false
	if s.slot {
		ended = s.taken || s.inTurn
		s.slot = false
		g.used--
		if !s.taken {
			g.polling--
		}
		g.moved = time.Now()
	}
	g.pass(ended)
}

// enter puts the task at s in the room.
func (g *gate) enter(s *position, limiters []string) {
	s.waits, s.limiters = true, limiters
	g.waiting++
	if s.due {
		g.due++
	}
	if s.competes {
		g.compete++
	}
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
	if s.due {
		s.due = false
		g.due--
	}
	if s.competes {
		s.competes = false
		g.compete--
	}
}

// pass gives free slots to those who ask, and lets others be admitted. It decides for whom a slot is that a
// task had (ended): where handlers are long, tasks are called only when a slot is free.
func (g *gate) pass(ended bool) {
	now := time.Now()
	for g.used < g.size.slots && len(g.asking) > 0 {
		s := g.first()
		g.exit(s)
		g.occupy(s, s.called)
		close(s.given)
	}
	if ended && g.size.slots-g.used == len(g.turns)+len(g.leftToLines(now))+1 { // there is no other free slot
		if queue, ofLine := g.turn(now); !ofLine && queue != "" {
			g.turns = append(g.turns, queue)
		}
	}
	if g.full && g.used < g.size.slots {
		g.tell()
	}
	g.announce()
}

// tell tells the caller that there may be capacity.
func (g *gate) tell() {
	g.full = false
	select {
	case g.freed <- struct{}{}:
	default:
	}
}

// first takes the task that comes first out of those that ask for a slot.
func (g *gate) first() *position {
	best, now := 0, time.Now()
	for i := range g.asking {
		if g.before(g.asking[i], g.asking[best], now) {
			best = i
		}
	}
	s := g.asking[best]
	g.asking = slices.Delete(g.asking, best, best+1)
	return s
}

func (g *gate) announce() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// before reports whether the task at a gets a slot before the one at b. If the server is strict,
// that is the task of the queue with more weight. Otherwise it is the task whose wait, times the
// weight of its queue, is longer.
func (g *gate) before(a, b *position, now time.Time) bool {
	wa, wb := max(g.size.weights[a.queue], 1), max(g.size.weights[b.queue], 1)
	if g.size.strict && wa != wb {
		return wa > wb
	}
	return now.Sub(a.since)*time.Duration(wa) > now.Sub(b.since)*time.Duration(wb)
}

// close makes the gate admit nobody any more.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passing = true
	g.announce()
}

// load returns how many tasks have slots and how many wait in the room.
func (g *gate) load() (running, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used - g.polling, g.waiting
}
