package asynqlimit

import (
	"cmp"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

const (
	// lead is how long before its permits come due a task is called from its line:
	// time to get through asynq's queue and into this process.
	lead = 200 * time.Millisecond
	// slack is what a wait may take beyond its place: the next one, if the place
	// was stale.
	slack = 200 * time.Millisecond
	// briefly is how long a task that was not called waits for a limiter that tenants
	// share.
	briefly = 50 * time.Millisecond
	// soonGone is how long a line may take to empty, and count as none: a task that
	// comes now starts at most so long before those in it.
	soonGone = 500 * time.Millisecond
)

// standing is what is known about a task that is about to ask for its permits.
type standing struct {
	came   line.State    // how it came; empty if it is new, or has run before
	ahead  string        // a limiter of its own that has others in line; empty if none does
	hold   time.Duration // how long it may wait in this process
	never  bool          // it is never to park: hold is forever
	shared bool          // tenants share a limiter of its own
	time   time.Duration // that the task has left for waiting and running; negative if that is endless
	room   bool          // there is room for it here
}

// due says whether its turn is near: it was called, or comes back because its
// process ended.
func (s standing) due() bool { return s.came.Near() }

// verdict is what to do with it.
type verdict struct {
	park string        // in the line of this limiter, without asking
	wait time.Duration // at most, for its permits
}

// decide says whether a task asks for its permits, and how long it may wait for
// them. Those who were called, and those who come back because their process
// ended, ask: their turn is near. Others queue behind those in line. A task waits
// for no more than a quarter of its time, since asynq counts the wait against its
// timeout, and fails the attempt when that is over. Where tenants share a limiter, what
// waits in processes is as little as keeps it busy: a tenant that comes now is not
// behind what others were promised.
func decide(s standing) verdict {
	if s.ahead != "" && !s.due() && !s.never {
		return verdict{park: s.ahead}
	}
	wait := s.hold
	switch {
	case s.due() && s.shared:
		wait = lead + slack
	case s.due():
		wait = max(wait, lead+slack)
	case !s.room && !s.never:
		wait = 0
	case s.shared:
		wait = min(wait, briefly)
	}
	if s.time >= 0 {
		wait = min(wait, s.time/4)
	}
	return verdict{wait: max(wait, 0)}
}

const (
	// soonest and farthest bound the time between two looks at a line. A raised
	// rate or an ended pause is noticed within farthest, or later where there are
	// so many lines that looking would cost more than it gains.
	soonest  = 50 * time.Millisecond
	farthest = 400 * time.Millisecond
	perLine  = 500 * time.Microsecond
	longest  = time.Minute
)

// nextLook is when to look again at a line whose limiter's next permit comes
// after wait, in a queue with so many lines. A line from which fewer were called
// than its limiter gives, because this process has no place for them, is left to
// others at once.
func nextVisit(wait time.Duration, lines int64, short bool) time.Duration {
	switch {
	case short:
		return soonest / 5
	case wait > lead:
		return min(wait-lead, max(farthest, min(time.Duration(lines)*perLine, longest)))
	}
	return soonest
}

// allot divides places among lines that have tasks for so many: what one does not
// need, others have.
func allot(capacity int64, needs []int64) []int64 {
	got := make([]int64, len(needs))
	order := make([]int, len(needs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(needs[a], needs[b]) })
	for n, i := range order {
		rest := int64(len(order) - n)
		got[i] = min(needs[i], (capacity+rest-1)/rest)
		capacity -= got[i]
	}
	return got
}

// stayAway is how long a task stays away that its API refuses alone: twice as
// long each time.
func stayAway(after, most time.Duration, times int64) time.Duration {
	for n := times; n > 1 && after < most; n-- {
		after *= 2
	}
	return min(after, most)
}
