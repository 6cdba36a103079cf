package asynqlimit

import (
	"cmp"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

const (
	// lead is how long before its permits are due a task is called from its line: the time to get
	// through asynq's queue and into this process.
	lead = 200 * time.Millisecond
	// slack is how much longer than its reservation a wait may take: if the reservation was
	// stale, the task waits for the next one.
	slack = 200 * time.Millisecond
	// briefly is for how long a task that was not called waits for a limiter that tenants share.
	briefly = 50 * time.Millisecond
	// soonGone: a line that empties within this time counts as none, if there are permits for all in it. A task that comes
	// now starts before them by at most this time.
	soonGone = 500 * time.Millisecond
	// backIn is about how long it takes until a task that parks is back, at least.
	backIn = lead + slack + line.Settled
)

// standing is what is known about a task that is about to ask for its permits.
type standing struct {
	came    line.State    // how it came; empty if it is new, or has run before
	ahead   string        // one of its limiters that has others in line; empty if none has
	forSlot bool          // it was called for a slot
	slots   bool          // it needs slots of limits in flight
	hold    time.Duration // how long it may wait in this process
	never   bool          // it must never park: hold is forever
	shared  bool          // tenants share one of its limiters
	most    time.Duration // how long the task may wait at most, whatever the configuration says
	room    bool          // there is room for it here
}

// due reports whether its permits are due soon: it was called, or it comes back because its
// process ended.
func (s standing) due() bool { return s.came.Near() }

// verdict is what to do with the task.
type verdict struct {
	park string        // it parks in the line of this limiter, without asking
	wait time.Duration // for its permits, at most
}

// decide returns whether a task asks for its permits, and how long it may wait for them. Tasks that were called, and tasks that come
// back because their process ended, ask: their permits are due soon. If a task was called for a slot, or needs slots, too, they may
// be due a little later, but not as late as its hold: it takes about as long to park and be called again, but slots are not for tasks
// that wait for permits. The same holds if there is no room: those of another of its limiters may be due much later, and it would
// idle in a slot until then. A task that was called for a slot queues behind those in line for permits that came earlier, and one
// that was not called behind all of those in line. Where tenants share a limiter, only as many tasks wait in processes as keep the
// limiter busy: so a tenant that comes now is not behind what others were promised.
func decide(s standing) verdict {
	if s.ahead != "" && (!s.due() || s.forSlot) && !s.never {
		return verdict{park: s.ahead}
	}
	wait, least := s.hold, lead+slack
	if s.forSlot || s.slots {
		least = backIn
	}
	switch {
	case s.due() && (s.shared || s.forSlot) && !s.never:
		wait = least
	case s.due() && !s.room && !s.never:
		wait = max(min(wait, backIn), least)
	case s.due():
		wait = max(wait, least)
	case !s.room && !s.never:
		wait = 0
	case s.shared:
		wait = min(wait, briefly)
	}
	return verdict{wait: max(min(wait, s.most), 0)}
}

const (
	// soonest and farthest bound the time between two visits of a line. A raised rate or an ended
	// pause is noticed within farthest. It is noticed later if there are so many lines that more
	// visits would cost more than they gain.
	soonest  = line.VisitAgain
	farthest = 400 * time.Millisecond
	perLine  = 500 * time.Microsecond
	longest  = time.Minute
	// whenShort is the time between two visits by processes that have capacity for less than half of
	// the tasks that are due: so long that those that were called have been taken.
	whenShort = 2 * time.Millisecond
)

// visitsApart is the time between two visits of a line at most: farthest, or longer if a queue has many lines, so much for each.
func visitsApart(lines int64, each time.Duration) time.Duration {
	return max(farthest, min(time.Duration(lines)*each, longest))
}

// nextVisit returns the time until the next visit of a line, at most most. The next permit of its limiter is free after
// wait, and other permits soon after it. So the visit comes a little later than it could: then one visit is enough for a
// burst. If this process has capacity for few of the due tasks (short), it leaves the line to other processes at once.
func nextVisit(wait, most time.Duration, short bool) time.Duration {
	switch {
	case short:
		return whenShort
	case wait > lead:
		return min(wait-lead+soonest, most)
	}
	return soonest
}

// passesApart is the time between two passes while lines are due, if there are so many lines.
func passesApart(lines int64) time.Duration {
	return busy + min(time.Duration(lines)*busyPerLine, busy)
}

// nextClaims returns how many lines the next pass claims. The last pass claimed at most claims lines. It had capacity
// for some tasks, and found permits for wants tasks. full says that there may have been more lines.
//
// If the permits of many lines are used up, a pass has to claim many lines to find those that have permits. Otherwise
// each pass claims fewer lines, down to its capacity, and leaves the others to processes that have capacity.
func nextClaims(claims, capacity int, wants int64, full bool) int {
	switch {
	case wants >= int64(capacity):
		return claims / 2
	case full:
		return min(2*claims, line.MaxClaimed)
	}
	return claims
}

// allot divides capacity among limiters. needs is for how many tasks each of them gives permits.
// What one limiter does not need, others get. If there is not enough for one task of each, the
// first limiters get it.
func allot(capacity int64, needs []int64) []int64 {
	got := make([]int64, len(needs))
	var order []int
	for i, n := range needs {
		if n > 0 {
			order = append(order, i)
		}
	}
	if capacity >= int64(len(order)) {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(needs[a], needs[b]) })
	}
	for n, i := range order {
		rest := int64(len(order) - n)
		got[i] = min(needs[i], (capacity+rest-1)/rest)
		capacity -= got[i]
	}
	return got
}

// stayAway is for how long a task stays away if its API refuses this task alone: twice as long
// each time.
func stayAway(after, most time.Duration, times int64) time.Duration {
	for n := times; n > 1 && after < most; n-- {
		after *= 2
	}
	return min(after, most)
}
