package asynqlimit

import (
	"context"
	"slices"
	"time"
)

// seat is where one taken task is: in a slot, in the room, or gone.
type position struct {
	g        *gate
	queue    string
	slot     bool
	limiters []string // in the room for them; nil: not in the room
	waits    bool     // in the room
	asks     bool     // for its permits, and has no answer yet
	since    time.Time
	began    time.Time     // in its slot
	given    chan struct{} // closed when it gets the slot that it asks for
}

// hasRoom says whether a task of these limiters may wait. One limiter has half of
// the room at most, so that its tasks do not keep those of others out.
func (s *position) hasRoom(limiters []string) bool {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	return s.waits || s.g.hasRoom(limiters)
}

func (g *gate) hasRoom(limiters []string) bool {
	if g.waiting >= g.size.room {
		return false
	}
	for _, name := range limiters {
		if g.of[name] >= max(g.size.room/2, 1) {
			return false
		}
	}
	return true
}

// toRoom has the task wait in the room, if there is place, and frees its slot. A
// task that is due may go where others of its limiter would be too many. A task
// that waits in its slot all the same changes places with one of the room that
// wants a slot.
func (s *position) toRoom(limiters []string, due bool) bool {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	return s.toRoomNow(limiters, due)
}

// asking says whether the task asks for its permits, and has no answer yet.
func (s *position) asking(asks bool) {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	s.asks = asks
}

// toRoomIfAsking is toRoom for a task that may have its permits by now. If it has
// not, it calls waits.
func (s *position) toRoomIfAsking(limiters []string, waits func()) {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	if s.asks {
		s.toRoomNow(limiters, false)
		waits()
	}
}

func (s *position) toRoomNow(limiters []string, due bool) bool {
	if s.waits {
		s.g.exit(s)
		s.g.enter(s, limiters)
		return true
	}
	if !s.slot {
		return false
	}
	s.g.works(s)
	if !s.g.hasRoom(limiters) && (!due || s.g.waiting >= s.g.size.room) {
		s.limiters = limiters
		s.g.idlers = append(s.g.idlers, s)
		return false
	}
	s.g.enter(s, limiters)
	s.g.vacate(s)
	return true
}

// toSlotNow says whether the task has a slot, or gets one without a wait.
func (s *position) toSlotNow() bool {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	return s.slotNow()
}

func (s *position) slotNow() bool {
	s.g.works(s)
	switch {
	case s.slot:
	case len(s.g.idlers) > 0:
		s.g.change(s.g.idlers[0], s)
	case s.g.used < s.g.size.slots && len(s.g.asking) == 0:
		s.g.exit(s)
		s.g.occupy(s)
	default:
		return false
	}
	return true
}

// toSlot waits for a slot. A task that has one keeps it.
func (s *position) toSlot(ctx context.Context) error {
	s.g.mu.Lock()
	if s.slotNow() {
		s.g.mu.Unlock()
		return nil
	}
	s.given = make(chan struct{})
	s.g.asking = append(s.g.asking, s)
	s.g.mu.Unlock()
	select {
	case <-s.given:
		return nil
	case <-ctx.Done():
	}
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	if i := slices.Index(s.g.asking, s); i >= 0 {
		s.g.asking = slices.Delete(s.g.asking, i, i+1)
		return context.Cause(ctx)
	}
	return nil // it was given meanwhile
}

// works says that a task does not idle in its slot any more.
func (g *gate) works(s *position) {
	if i := slices.Index(g.idlers, s); i >= 0 {
		g.idlers = slices.Delete(g.idlers, i, i+1)
		s.limiters = nil
	}
}

// change has a task that idles in a slot change places with one of the room.
func (g *gate) change(idler, s *position) {
	limiters := idler.limiters
	g.works(idler)
	g.exit(s)
	idler.slot = false
	g.enter(idler, limiters)
	s.slot, s.began = true, time.Now()
}

// ran notes how long the handler had the slot.
func (s *position) ran(took time.Duration) {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	if s.g.lasts == 0 {
		s.g.lasts = took
	}
	s.g.lasts += (took - s.g.lasts) / 8
}

// leave gives back what the task has.
func (s *position) leave() {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	s.g.works(s)
	s.g.exit(s)
	s.g.vacate(s)
}
