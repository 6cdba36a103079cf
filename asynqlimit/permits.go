package asynqlimit

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/arrived"
	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle"
)

const (
	// askingLasts is how long a task keeps its slot while it asks for its permits: most tasks
	// have an answer by then. After that it goes to the room.
	askingLasts = 10 * time.Millisecond
	// early is how long before its permits are due a task leaves the room for a slot.
	early = 20 * time.Millisecond
)

// acquire gets the task's permits: it calls hold and then use.
func (j *job) acquire(ctx context.Context) error {
	if len(j.limiter) == 0 || j.held {
		return nil
	}
	j.goes = true
	for tries := 0; ; tries++ {
		if err := j.hold(ctx); err != nil {
			return err
		}
		ok, err := j.use(ctx)
		if err != nil || ok {
			return err
		}
		if tries == 2 {
			return j.throttled(j.limiter[0].Name(), lead, nil) // other tasks fill the slots
		}
	}
}

// hold reserves the permits if they are due within the job's hold and there is room for the task
// here. Then the task waits in the room until shortly before they are due. A task that has missed
// permits before keeps its slot instead if the new ones are due soonEnough. If the permits are due
// later, or there is no room, hold returns a *ThrottledError, and the task parks. A task that was called
// does so, too, if its permits are not due soon after all: there is more room only for those whose permits are.
func (j *job) hold(ctx context.Context) (err error) {
	if len(j.limiter) == 0 || j.reservation != nil || j.held {
		return nil
	}
	if j.span == nil {
		j.span = j.trace(ctx, j.needs.limiters, j.needs.mostCost())
	}
	defer func() { j.endSpan(err) }()
	defer j.clock()()
	defer j.a.pauses()()
	running, cancel := j.l.whileRunning(ctx)
	defer cancel()
	if err := j.applyRates(running); err != nil {
		return j.undecided(ctx, err)
	}
	s, err := j.standing(running)
	if err != nil {
		return j.undecided(ctx, err)
	}
	v := decide(s)
	if j.lease != nil && !s.never { // its handler gets the permits: the slots are not for those who wait
		v.wait = min(v.wait, soonEnough)
	}
	if v.park != "" {
		return j.throttled(v.park, j.l.caller.estimateWait(j.a.queue, line.Whole(j.needs.lineOf(v.park)), j.needs.rateOf(v.park)), nil)
	}
	j.a.waitsFor(j.parkingIn(j.needs.limiters[0]))
	r, err := j.ask(running, v.wait)
	if err != nil {
		return j.undecided(ctx, err)
	}
	atOnce := r.OK() && r.Delay() <= early
	j.expectAtOnce(r.Limiter(), atOnce)
	if !r.OK() {
		return j.throttled(r.Limiter(), r.Delay(), nil)
	}
	if j.reservation = r; s.due() && len(j.limiter) > 1 && r.Delay() > lead+slack { // those of another limiter are due later
		j.l.caller.leavesOver(j.a.queue, j.a.wait)
	}
	if !s.due() {
		for i, name := range j.needs.limiters {
			j.l.caller.promised(name, j.needs.costs[i])
		}
	}
	j.a.waitsFor(j.parkingIn(r.Limiter()))
	if atOnce || j.missed && r.Delay() <= soonEnough && j.a.position.toSlotNow() { // else it might miss these, too
		return nil
	}
	j.stays()
	soon := r.Delay() <= lead+slack
	if !soon {
		j.l.caller.answered(j.a) // slots are for others until then
	}
	if s.never || s.due() && r.Delay() <= backIn {
		j.a.position.stay(j.needs.limiters, s.due(), soon)
	} else if !j.a.position.toRoom(j.needs.limiters, false, soon) {
		j.giveUp()
		return j.nowOrPark(ctx, running)
	}
	return j.near(ctx, running)
}

// near waits until shortly before the reserved permits are due.
func (j *job) near(ctx, running context.Context) error {
	r := j.reservation
	switch err := r.Near(running, early); {
	case err == nil:
		return nil
	case errors.Is(err, throttle.ErrExceedsDeadline):
		j.reservation = nil
		return j.throttled(r.Limiter(), r.Delay(), nil) // paused or lowered meanwhile
	default:
		j.giveUp()
		return j.undecided(ctx, err)
	}
}

// standing returns what is known about the task now.
func (j *job) standing(ctx context.Context) (s standing, err error) {
	s = standing{came: j.came(), forSlot: j.calledForSlot(), slots: j.slots != nil, hold: j.mayHold(), never: j.needs.rule.never, shared: j.needs.shared(), most: j.mayWait(ctx), room: j.a.position.hasRoom(j.needs.limiters)}
	switch {
	case s.never:
	case !s.due():
		s.ahead, err = j.l.caller.ahead(ctx, j.a.queue, j.needs)
	case s.forSlot && !s.shared:
		s.ahead, err = j.earlierFor(ctx)
	}
	return s, err
}

// came returns how the task came: empty, too, if it was called, but not for its permits. A task that was called for a slot, or for
// max_in_flight, has stood in the lines for its permits before that, unless it waited for its turn in an order, or its handler
// gets the permits.
func (j *job) came() line.State {
	stood := j.calledForSlot() && !j.keepsOrder() && (!j.acquires || !strings.HasPrefix(j.a.wait.Line, fullLine))
	if j.a.wait.State == line.Called && line.IsBlocked(j.a.wait.Line) && !stood {
		return ""
	}
	return j.a.wait.State
}

// ask reserves the permits of all limiters, or of none. If that takes long, the task waits for
// the answer in the room. A task that needs slots, too, may ask several times, because it gives its permits back for want of a slot.
// So it takes the turn of those here that came later, from the same queue.
func (j *job) ask(ctx context.Context, maxWait time.Duration) (*throttle.Reservation, error) {
	j.a.inTurn(ctx)
	if j.leaves = j.goes && j.atOnce(); j.leaves {
		j.l.rooms.of(j.a).leaving(j.a)
	}
	if maxWait > askingLasts {
		j.a.position.asking(true)
		defer j.a.position.asking(false)
		called := j.came().Near()
		defer time.AfterFunc(askingLasts, func() {
			j.a.position.stayIfAsking(j.needs.limiters, called, func() { j.l.rooms.of(j.a).enter(j.a) })
		}).Stop()
	}
	defer j.a.ask()
	if !j.calledForSlot() { // else it counts until the limit in flight has answered, or its permits are due later than soon
		defer j.l.caller.answered(j.a)
	}
	if ctx = arrived.With(ctx, j.a.ask); j.a.since > 0 && (j.slots != nil || j.needs.rule.inFlight != nil) && !j.needs.shared() {
		ctx = arrived.WithTurn(ctx, arrived.Turn{Among: j.a.queue, Since: j.a.since})
	}
	return j.reserve(ctx, j.needs.costs, maxWait)
}

// stays puts the task back on the list of waiting tasks, if it has left it.
func (j *job) stays() {
	if j.leaves {
		j.leaves = false
		j.l.rooms.of(j.a).enter(j.a)
	}
}

// atOnce reports whether the limits of the task gave permits at once when they were last asked.
// Then the task leaves the list of waiting tasks while it asks, because a permit is worth less
// the later it is used.
func (j *job) atOnce() bool {
	for _, d := range j.needs.draws {
		if !j.l.rules.limits[d.Limit].atOnce.Load() {
			return false
		}
	}
	return true
}

// expectAtOnce notes the result of a request for the next task: all permits were there, or those
// of one limiter were not.
func (j *job) expectAtOnce(limiter string, there bool) {
	for _, d := range j.needs.draws {
		if limit := j.l.rules.limits[d.Limit]; (there || d.Limiter == limiter) && limit.atOnce.Load() != there {
			limit.atOnce.Store(there)
		}
	}
}

func (j *job) reserve(ctx context.Context, costs []int64, maxWait time.Duration) (*throttle.Reservation, error) {
	if len(j.limiter) == 1 {
		return j.limiter[0].Reserve(ctx, costs[0], maxWait)
	}
	g, err := j.l.throttle.Group(j.limiter...)
	if err != nil {
		return nil, err
	}
	return g.ReserveEach(ctx, maxWait, costs...)
}

// use gets a slot and then, when they are due, the permits. It returns true if the task has both.
// It returns false without an error in two cases: the permits were due before there was a slot, and
// the task has a slot by now; or the permits are not due soon any more, and the task holds slots of
// limits in flight. In both cases the reservation was given back.
func (j *job) use(ctx context.Context) (ok bool, err error) {
	if len(j.limiter) == 0 || j.held {
		return true, nil
	}
	r := j.reservation
	defer func() { j.endSpan(err) }()
	stop := j.clock()
	defer stop()
	defer j.a.pauses()()
	running, cancel := j.l.whileRunning(ctx)
	defer cancel()
	switch d := r.Delay(); { // it may have been paused or lowered meanwhile
	case d > soonEnough && j.lease != nil:
		j.giveUp()
		return false, nil
	case d > early:
		j.stays()
	}
	if err = j.near(ctx, running); err != nil {
		return false, err
	}
	if !j.a.position.toSlotNow() {
		j.stays()
	}
	late := j.lateBy()
	inTime, cancelInTime := context.WithTimeout(running, min(max(r.Delay(), 0)+late, j.mayWait(ctx)))
	defer cancelInTime()
	if err = j.a.position.toSlot(inTime); err != nil {
		return false, j.misses(ctx, running, late)
	}
	if !j.a.leases() { // it cannot begin: others get the permits
		j.giveUp()
		return false, errGone
	}
	landed, cancelLanded := context.WithTimeout(running, max(r.Delay(), 0)+j.leavesBy())
	defer cancelLanded()
	j.l.rooms.of(j.a).leave(landed, j.a)
	most, holds := max(min(j.needs.rule.Hold, j.mayWait(ctx)), lead+slack)+lead+slack, j.lease != nil && !j.acquires
	if holds { // the slots are not for those who wait: if others have reserved what is due next, an exchange may take long
		most = max(r.Delay(), 0) + slotWithin
	}
	longest, cancelWait := context.WithTimeout(running, most)
	defer cancelWait()
	if err := r.Wait(longest); err != nil {
		j.reservation = nil
		r.Cancel()
		switch late := errors.Is(err, throttle.ErrExceedsDeadline) || longest.Err() != nil && running.Err() == nil; {
		case late && holds:
			return false, nil
		case late:
			return false, j.throttled(r.Limiter(), r.Delay(), nil) // paused or lowered meanwhile
		}
		return false, j.undecided(ctx, err)
	}
	j.reservation = nil
	j.l.caller.gotPermits(j.a, j.needs.limiters)
	stop()
	j.needs.rule.counts.waits.add(j.waited)
	j.took(j.needs.costs, r)
	j.held, j.sent = true, time.Now()
	j.served()
	j.closeSpan(nil)
	return true, nil
}

// misses gives back permits that were due before the task had a slot of the process: late after that. Then it waits a little longer
// for the slot. Without an error the task has it.
func (j *job) misses(ctx, running context.Context, late time.Duration) error {
	limiter := j.reservation.Limiter()
	if running.Err() == nil {
		j.l.caller.asksAgain(j.a, j.needs.lineOf(limiter), j.needs.costOf(limiter))
	}
	j.giveUp()
	if running.Err() != nil {
		return j.undecided(ctx, running.Err())
	}
	slot, cancel := context.WithTimeout(running, min(max(min(j.needs.rule.Hold, time.Second-late), lead), j.mayWait(ctx)))
	defer cancel()
	switch err := j.a.position.toSlot(slot); {
	case err == nil:
		j.a.wait.State, j.missed = line.Called, true // it has waited in turn
		return nil
	case running.Err() != nil:
		return j.undecided(ctx, running.Err())
	}
	return j.throttled(limiter, 0, nil)
}

// giveUp gives back permits that are reserved and not used.
func (j *job) giveUp() {
	if j.reservation != nil {
		j.reservation.Cancel()
		j.reservation = nil
	}
}

// applyRates sets the rates of keyed limiters that this process uses for the first time.
func (j *job) applyRates(ctx context.Context) error {
	for i, l := range j.limiter {
		draw := j.needs.draws[i]
		if draw.Limit.Key == "" || j.l.applied.has(l.Name()) {
			continue
		}
		if _, err := l.ApplyAdapt(ctx, draw.Rate, draw.Limit.Adapt); err != nil {
			return err
		}
		j.l.applied.add(l.Name())
	}
	return nil
}

// clock adds the time until the returned function is first called to what the task has waited.
func (j *job) clock() (stop func()) {
	began, stopped := time.Now(), false
	return func() {
		if !stopped {
			j.waited += time.Since(began)
		}
		stopped = true
	}
}
