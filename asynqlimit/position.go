package asynqlimit

import (
	"context"
	"slices"
	"time"
)

// position is where one taken task is: in a slot, in the room, or gone.
type position struct {
	g        *gate
	queue    string
	slot     bool
	limiters []string // for which it waits, in the room or in its slot
	waits    bool     // it is in the room
	due      bool     // it is in the room and wants a slot soon: its permits are due soon, or it asks for the slot
	competes bool     // it is in the room because it competes with those that ask for slots
	called   bool     // it was called, or came back
	taken    bool     // a task has come to it
	asks     bool     // it asks for its permits, and has no answer yet
	since    time.Time
	inTurn   bool          // its slot is for a queue whose turn it is
	given    chan struct{} // closed when it gets the slot that it asks for
}

// hasRoom reports whether a task of these limiters may wait that was not called. The tasks of one
// limiter use at most half of the room for such tasks, so that they do not keep those of others out.
func (s *position) hasRoom(limiters []string) bool {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	return s.waits || s.g.hasRoom(limiters)
}

func (g *gate) hasRoom(limiters []string) bool {
	if g.waiting >= g.size.notCalled {
		return false
	}
	for _, name := range limiters {
		if g.of[name] >= max(g.size.notCalled/2, 1) {
			return false
		}
	}
	return true
}

// roomFor is how many more tasks may be called to wait in the room for a limiter, beyond those for which it has something now.
func (g *gate) roomFor(limiter string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(min(g.size.room-g.waiting, max(g.size.notCalled/2, 1)-g.of[limiter]), 0)
}

// toRoom moves the task into the room, if there is room, and frees its slot. A task that was called
// may go there even if its limiter has its half of the room already. Soon says that the task wants a
// slot soon. If there is no room, the task idles in its slot until it has parked. If it came to the room because its
// permits were due soon, and they are not, there may be no room for it any more: it is there until it has parked.
func (s *position) toRoom(limiters []string, called, soon bool) bool {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	return s.toRoomNow(limiters, called, soon)
}

// stay is toRoom for a task that waits wherever it is. If there is no room, it idles in its slot, and exchanges
// it with a task in the room that wants a slot: at once, or later.
func (s *position) stay(limiters []string, called, soon bool) {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	s.stayNow(limiters, called, soon)
}

// asking sets whether the task asks for its permits, and has no answer yet.
func (s *position) asking(asks bool) {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	s.asks = asks
}

// stayIfAsking is stay for a task that may have its permits by now. If the task does not have them, it
// calls waits.
func (s *position) stayIfAsking(limiters []string, called bool, waits func()) {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	if !s.asks {
		return
	}
	s.stayNow(limiters, called, called)
	waits()
}

func (s *position) stayNow(limiters []string, called, soon bool) {
	if !s.toRoomNow(limiters, called, soon) && s.slot && len(s.g.asking) > 0 {
		asker := s.g.first()
		s.g.change(s, asker)
		close(asker.given)
	}
}

func (s *position) toRoomNow(limiters []string, called, soon bool) bool {
	if s.waits {
		later := s.due && !soon
		s.g.exit(s)
		fits := called || !later || s.g.hasRoom(limiters)
		s.due = soon
		s.g.enter(s, limiters)
		if later {
			s.g.pass(false)
		}
		return fits
	}
	if !s.slot {
		return false
	}
	s.g.works(s)
	s.due = soon
	if !s.g.hasRoom(limiters) && (!called || s.g.waiting >= s.g.size.room) {
		s.limiters = limiters
		s.g.idlers = append(s.g.idlers, s)
		return false
	}
	s.g.enter(s, limiters)
	s.g.vacate(s)
	return true
}

// came notes which task has come to s: one that was called, and whose permits are due soon, or another,
// which competes for a slot if it has none. While admitting it the gate could only guess. Since, if it
// is not zero, is since when the task has waited for a slot: it has competed before.
func (s *position) came(called bool, since time.Time) {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	if s.slot && !s.taken {
		s.g.polling--
	}
	s.called, s.taken = called, true
	if !since.IsZero() {
		s.since = since
	}
	if s.waits && s.competes == called {
		s.g.exit(s)
		s.due, s.competes = called, !called
		s.g.enter(s, nil)
	}
}

// toCompete gives back its slot, if it has one and there is room: the task competes for another when asynq
// has it.
func (s *position) toCompete() {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	if !s.slot || s.g.waiting >= s.g.size.room {
		return
	}
	s.due, s.competes = s.called, !s.called
	s.g.enter(s, nil)
	s.g.vacate(s)
}

// waitsSince is since when the task waits for a slot.
func (s *position) waitsSince() time.Time {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	return s.since
}

// competing reports whether the task came into the room to compete for a slot, and has none yet.
func (s *position) competing() bool {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	return s.competes
}

// toSlotNow reports whether the task has a slot, or gets one without a wait.
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
		s.g.occupy(s, s.called)
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
	if s.waits && !s.due {
		s.due = true
		s.g.due++
	}
	if s.called {
		s.g.announce() // others may compete with it
	}
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

// works records that a task does not idle in its slot any more.
func (g *gate) works(s *position) {
	if i := slices.Index(g.idlers, s); i >= 0 {
		g.idlers = slices.Delete(g.idlers, i, i+1)
		s.limiters = nil
	}
}

// change exchanges a task that idles in a slot with one in the room.
func (g *gate) change(idler, s *position) {
	limiters := idler.limiters
	g.works(idler)
	g.exit(s)
	idler.slot = false
	g.enter(idler, limiters)
	g.moved = time.Now()
	s.slot = true
	g.announce()
}

// ran notes how long the handler ran, without its waits.
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
