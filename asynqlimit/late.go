package asynqlimit

import (
	"cmp"
	"math"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// lateBy is how long after its permits are due a task may get its slot: half of an interval and its guard, and at most a
// second. The task keeps its permits until then. If they are too old when it has its slot, they are exchanged. As long as
// the old permits count, the task gets others at once, before those behind it, unless other processes have reserved them. If
// it gave its permits up earlier, those behind it would get them, and it would get the next permits that nobody has reserved,
// perhaps an interval later.
func (j *job) lateBy() time.Duration {
	return min(j.halfInterval(), time.Second)
}

// halfInterval is half of the shortest interval of its limits, with the guard.
func (j *job) halfInterval() time.Duration {
	half := time.Duration(math.MaxInt64)
	for _, r := range j.rates() {
		half = min(half, (r.Interval+guardOf(r))/2)
	}
	return half
}

// leavesBy is how long after its permits are due a task waits at most until Redis knows that it does not wait any more. It
// is a quarter of the shortest guard: half of how late permits may be used.
func (j *job) leavesBy() time.Duration {
	late := time.Second
	for _, r := range j.rates() {
		late = min(late, guardOf(r)/4)
	}
	return max(late, time.Millisecond)
}

func guardOf(r throttle.Rate) time.Duration { return max(cmp.Or(r.Guard, r.DefaultGuard()), 0) }
