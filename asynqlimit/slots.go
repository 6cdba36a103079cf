package asynqlimit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/arrived"
	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// slotCounts are the counters of a limit in flight.
type slotCounts struct {
	held, running, lost, outlived, parked, wouldWait atomic.Int64
}

// holder names a task among the holders of slots: the same name for each attempt.
func holder(queue, id string) string {
	name := queue + "/" + id
	if len(name) <= 512 {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return queue[:min(len(queue), 256)] + "/" + hex.EncodeToString(sum[:])
}

// slotGroup returns the limits in flight of which the task needs a slot, together; nil if there
// are none.
func (j *job) slotGroup() (*throttle.SlotGroup, error) {
	if len(j.needs.slots) == 0 {
		return nil, nil
	}
	fs := make([]*throttle.InFlight, len(j.needs.slots))
	for i, s := range j.needs.slots {
		f, err := j.l.throttle.InFlight(s.Limiter, s.Limit.Slots)
		if err != nil {
			return nil, err
		}
		fs[i] = f
	}
	return j.l.throttle.SlotGroup(fs...)
}

// together gets a slot of each limit in flight and the permits of the other limits: from all of
// them, or from none. The task waits for the permits first, and holds no slot meanwhile. If it
// then has to wait for a slot, its reservation goes back, at once or soon: see keepsPermits.
//
// A handler that gets its permits itself runs in the slots and then asks for its permits, which
// are due soon.
func (j *job) together(ctx context.Context) error {
	for tries := 0; ; tries++ {
		if err := j.hold(ctx); err != nil {
			return err
		}
		if err := j.takeSlots(ctx); err != nil {
			return err
		}
		if j.acquires || len(j.limiter) == 0 {
			return nil
		}
		late, err := j.permitsNow(ctx)
		if err != nil || late == nil {
			return err
		}
		j.freeSlots()
		j.hadSlots = true
		if tries == 2 {
			return j.hadNoPermits(late)
		}
		j.l.rooms.of(j.a).enter(j.a) // it waits again
	}
}

// soonEnough is how long at most a task holds slots of limits in flight until its permits are due, or a slot of
// the process if it has missed permits for want of one.
const soonEnough = 100 * time.Millisecond

// permitsNow gets the permits of a task that has its slots. If they are not due now, late says
// what the task waits for.
func (j *job) permitsNow(ctx context.Context) (late *ThrottledError, err error) {
	if j.reservation == nil { // it has waited for its slots
		running, cancel := j.l.whileRunning(ctx)
		defer cancel()
		r, err := j.ask(running, soonEnough)
		if err != nil {
			return nil, j.undecided(ctx, err)
		}
		if !r.OK() {
			return j.throttled(r.Limiter(), r.Delay(), nil), nil
		}
		j.reservation = r
	}
	ok, err := j.use(ctx)
	if err != nil || ok {
		return nil, err
	}
	return j.throttled(j.limiter[0].Name(), lead, nil), nil
}

// slotWithin is how long a task holds its slots while it waits for a slot of the process, or for what it gets in exchange for
// permits that are too old.
const slotWithin = time.Second

// takeSlots gets a slot of each limit in flight. The task waits for them in the room, and parks
// if that takes longer than its hold.
func (j *job) takeSlots(ctx context.Context) error {
	if j.slots == nil || j.lease != nil {
		return nil
	}
	if j.queuesForSlots() {
		running, cancel := j.l.whileRunning(ctx)
		defer cancel()
		for _, s := range j.needs.slots {
			if keepsOrder(s.Limit) {
				continue
			}
			switch queues, err := j.queuesFor(running, line.InFlight+s.Limiter, j.comesAt(s.Limiter)); {
			case err != nil:
				return j.undecided(ctx, err)
			case queues:
				return j.parkForSlot(s.Limiter)
			}
		}
	}
	defer j.clock()()
	if err := j.askForSlots(ctx); err != nil || j.lease != nil {
		return err
	}
	return j.askForSlots(ctx) // it has a slot of the process now
}

// askForSlots is takeSlots for a task that does not stand behind others. If the task has got a slot of the
// process and has to ask again, it has no lease, and there is no error.
func (j *job) askForSlots(ctx context.Context) error {
	running, cancel := j.l.whileRunning(ctx)
	defer cancel()
	wait, near := j.mayHold(), j.a.wait.State.Near()
	if near {
		wait = max(wait, lead+slack)
	}
	most := j.mayWait(ctx)
	wait = min(wait, most)
	names := j.slotLines()
	since, back := j.comesAt(j.needs.slots[0].Limiter), 50*time.Millisecond // at least the way to Redis and back
	within, leave := context.WithTimeout(running, max(most, back))
	defer leave()
	over, waiters := func() {}, probeKey{j.a.queue, strings.Join(names, "\n")}
	if !j.needs.rule.never {
		over = j.l.caller.waitsHere(waiters, since, max(wait, back), max(most, back), leave)
	}
	j.a.inTurn(ctx)
	j.a.waitsFor(j.parkingIn(line.InFlight + j.needs.slots[0].Limiter))
	atOnce := true
	if j.leaves = j.slotsAtOnce(); j.leaves { // now, so that a slot that it holds need not wait for that
		j.l.rooms.of(j.a).leaving(j.a)
	}
	var first atomic.Int64
	first.Store(since)
	var kept *time.Timer // ends its reservation
	asks := arrived.WithSlots(arrived.With(within, j.a.ask), arrived.Slots{First: &first, Refused: func() {
		atOnce = false
		if r := j.reservation; r != nil && wait > 0 && j.keepsPermits(waiters, since) {
			kept = time.AfterFunc(j.keepsFor(), func() {
				r.Cancel()
				j.l.caller.visitSoon(j.a.queue, j.needs.lines...)
			})
		} else {
			j.giveUp()
		}
		j.l.caller.answered(j.a) // it is in the limit's line now
		j.stays()
		switch stays := near || j.needs.rule.never; {
		case wait <= 0:
			leave()
		case stays:
			j.a.position.stay(names, near, false)
		case !j.a.position.toRoom(names, false, false):
			leave()
		}
	}})
	lease, err := j.slots.AcquireEach(asks, holder(j.a.queue, j.a.id))
	over()
	if kept != nil && !kept.Stop() {
		j.giveUp()
	}
	j.l.caller.answered(j.a)
	j.expectSlots(atOnce && err == nil)
	if err != nil {
		j.stays()
	}
	switch {
	case err == nil:
		return j.runHolding(ctx, running, lease)
	case errors.Is(err, throttle.ErrReentered):
		return errGone // a later attempt of the task is here
	case within.Err() != nil && running.Err() == nil:
		return j.parkForSlot(limiterOf(err))
	}
	if blocked := blockedBySlots(err); blocked != nil {
		return blocked
	}
	return j.undecided(ctx, err)
}

// mayHold is how long the task may wait here, for its permits and for its slots: its hold. If it was called and needs both, it is
// at most two intervals of its rates: one for a slot, and one for other permits if those were too old by then. The longer such
// tasks wait, the more of them reserve permits and give them back for want of a slot. When there is a slot, others have reserved
// what is due, and it goes to whoever came last.
func (j *job) mayHold() time.Duration {
	hold := j.needs.rule.Hold
	if j.slots == nil || len(j.limiter) == 0 || !j.came().Near() || j.needs.rule.never {
		return hold
	}
	most := time.Duration(0)
	for _, r := range j.rates() {
		most = max(most, 2*(r.Interval+guardOf(r)))
	}
	return min(hold, most)
}

// blockedBySlots returns what is wrong with a limit in flight, or nil if err is something else.
func blockedBySlots(err error) *BlockedError {
	switch {
	case errors.Is(err, throttle.ErrWrongType):
		return &BlockedError{Reason: BadKey, Err: err, Fix: "Redis has something else under a key of this limit in flight: rename the limit, or delete that key with redis-cli"}
	case errors.Is(err, throttle.ErrInvalidSlots):
		return &BlockedError{Reason: BadKey, Err: err, Fix: "restart the worker, which corrects a limit in flight; delete a rate of this name (throttle delete); or rename the limit"}
	}
	return nil
}

// slotsAtOnce reports whether the limits in flight of the task had slots at once when they were
// last asked.
func (j *job) slotsAtOnce() bool {
	for _, s := range j.needs.slots {
		if !j.l.rules.slots[s.Limit].atOnce.Load() {
			return false
		}
	}
	return true
}

// expectSlots notes for the next task whether there were slots at once.
func (j *job) expectSlots(there bool) {
	for _, s := range j.needs.slots {
		if of := j.l.rules.slots[s.Limit]; of.atOnce.Load() != there {
			of.atOnce.Store(there)
		}
	}
}

// limiterOf returns the limit that an error of the throttle names.
func limiterOf(err error) string {
	if e, ok := errors.AsType[*throttle.Error](err); ok {
		return e.Limiter
	}
	return ""
}

// runHolding notes the slots of a task, and gets it a slot of the process within slotWithin. If there is no
// slot of the process by then, the task gives its slots back, because slots of the fleet are not for tasks
// that wait. A task that was called then waits for a slot of the process first, and asks for its slots again.
func (j *job) runHolding(ctx, running context.Context, lease *throttle.Lease) error {
	j.lease = lease
	if (j.reservation == nil || j.acquires) && !j.a.position.toSlotNow() {
		soon, cancel := context.WithTimeout(running, max(min(slotWithin, j.mayWait(ctx)), 50*time.Millisecond))
		defer cancel()
		if err := j.a.position.toSlot(soon); err != nil {
			j.freeSlots()
			j.giveUp()
			j.stays()
			if left := j.mayWait(ctx); running.Err() == nil && j.a.wait.State.Near() && !j.late && left > 0 && !j.keepsOrder() {
				j.late = true
				bounded, cancel := context.WithTimeout(running, min(competesFor, left))
				defer cancel()
				if err = j.a.position.toSlot(bounded); err == nil {
					return nil
				}
			}
			if running.Err() != nil {
				return j.undecided(ctx, running.Err())
			}
			return j.parkForSlot(j.needs.slots[0].Limiter) // another process may have a slot
		}
	}
	for _, s := range j.needs.slots {
		c := &j.l.rules.slots[s.Limit].counts
		c.held.Add(1)
		c.running.Add(1)
	}
	j.counted = true
	return nil
}

// keepsOrder reports whether one of its limits in flight keeps the order of its tasks: while one of them
// waits here, the next could not go on anywhere.
func (j *job) keepsOrder() bool {
	return slices.ContainsFunc(j.needs.slots, func(s plan.Slot) bool { return keepsOrder(s.Limit) })
}

// parkForSlot parks the task in the line for a slot of the limit.
func (j *job) parkForSlot(limiter string) *ThrottledError {
	j.a.decide(parks, j.parkingIn(line.InFlight+limiter))
	return &ThrottledError{Limiter: limiter, RetryAfter: retryFull, Err: fmt.Errorf("all slots of %q are taken", limiter)}
}

// freeSlots gives the task's slots to the next in line.
func (j *job) freeSlots() {
	if j.lease == nil {
		return
	}
	giveBackSlots(j.lease)
	j.lease = nil
	if j.counted {
		j.counted = false
		for _, s := range j.needs.slots {
			j.l.rules.slots[s.Limit].counts.running.Add(-1)
		}
	}
	j.l.caller.ended(j.slotLines()...)
}

// giveBackSlots releases a lease, and does not wait until Redis knows.
func giveBackSlots(l *throttle.Lease) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = l.Release(over) // the slots go back anyway
}

// slotLimit is a limit in flight of the configuration.
type slotLimit struct {
	*plan.SlotLimit
	counts slotCounts
	atOnce atomic.Bool // it had a slot at once when it was last asked, or was not asked yet
}
