package asynqlimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// freeSlots is how many slots of a limit in flight are free: now, and soon. A few more tasks may wait in
// processes, so that a slot that becomes free is used at once.
type freeSlots struct{ now, soon int }

// maxSlotLines is for how many lines one pass finds out how many slots are free.
const maxSlotLines = 100

// rank is a sort key: what is first comes before what is not.
func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// toRead returns which limits in flight a pass reads: those of which this process knows that a slot has become free, and then
// any others, so that each limit gets its pass, whatever its queue.
func (c *caller) toRead(lined map[string]bool) []string {
	c.mu.Lock()
	maps.Copy(c.first, c.vacated)
	clear(c.vacated)
	c.mu.Unlock()
	defer clear(c.first)
	names := slices.Collect(maps.Keys(lined))
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(rank(c.first[a]), rank(c.first[b])) })
	return names[:min(len(names), maxSlotLines)]
}

// freeOf finds out how many slots are free of the limits for which tasks are in line. If not all slots of a limit are
// taken, at least one task is called, even if others wait for them in Redis. Those may belong to processes that have
// died, and the request of the called task removes them. (If they lived, Redis would have given them the slots.)
func (c *caller) freeOf(ctx context.Context, due []line.Due) error {
	lined := make(map[string]bool)
	for _, d := range due {
		for name := range d.Known {
			if limiter, ok := line.SlotLimit(name); ok && !d.Paused {
				lined[limiter] = true
			}
		}
	}
	now := time.Now()
	for name, until := range c.resting {
		if now.After(until) {
			delete(c.resting, name)
		} else {
			delete(lined, name)
		}
	}
	names := c.toRead(lined)
	clear(c.free)
	if len(names) == 0 {
		return nil
	}
	standings, err := c.fleet.InFlight(ctx, 0, names...)
	if err != nil {
		err = fmt.Errorf("read the limits in flight: %w", err) // the others go on
	}
	for i, s := range standings {
		name := names[i]
		if s.Limit < 0 && !errors.Is(s.Err, throttle.ErrInvalidRate) { // it could not be read
			continue
		}
		if s.Limit <= 0 { // it does not exist, or makes no sense: the first task creates it, or corrects it
			s.Limit = 1
		}
		free := int(s.Limit - s.Taken - s.Waiting)
		if s.Taken < s.Limit || c.raises(name, s, now) {
			free = max(free, 1)
		}
		c.free[name] = freeSlots{now: free, soon: free}
		if s.Limit > 1 {
			c.free[name] = freeSlots{now: free, soon: free + int(s.Limit/4)}
		}
	}
	return err
}

// raiseAgain is how long after a task was called the next one is, to tell Redis of a number that was raised.
const raiseAgain = 10 * time.Second

// raises reports whether the next task would raise the number of slots to that of the configuration, though all
// that Redis knows of are taken. The processes that hold them may have an older configuration.
func (c *caller) raises(name string, s operate.SlotUsage, now time.Time) bool {
	for _, l := range c.l.rules.slots {
		if l.Has(name) {
			return !s.Pinned && s.Taken < l.Slots.Limit && now.Sub(c.calledAt[name]) > raiseAgain
		}
	}
	return false
}

// vacant returns for how many tasks of a line there are slots, or how many max_in_flight lets run, besides
// those that were called before, from this queue or another. A limit with dry_run lets all run. waits is false if the line's tasks do not
// wait for that.
func (c *caller) vacant(key probeKey, at time.Time) (free freeSlots, waits bool) {
	limiter, slots := line.SlotLimit(key.line)
	free = c.free[limiter]
	if slots && c.l.rules.drySlots(limiter) {
		n := c.l.gate.size.slots
		free = freeSlots{n, n}
	}
	rule := c.l.fullRule(key.line)
	if rule != nil {
		n := cap(rule.inFlight) - len(rule.inFlight)
		free = freeSlots{n, n}
	}
	called := 0
	for _, queue := range c.queues {
		of := probeKey{queue, key.line}
		called += int(c.pending[of]) + c.toCome(of, at)
	}
	return freeSlots{free.now - called, free.soon - called}, slots || rule != nil
}
