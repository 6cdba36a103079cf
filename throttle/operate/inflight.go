package operate

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/internal/slots"
)

// SlotUsage is how a limit in flight ([throttle.InFlight]) stands. If there is no such limit, it
// has only the name.
type SlotUsage struct {
	Name    string
	Limit   int64         // slots
	Lease   time.Duration // for how long a slot stays taken whose holder died
	Taken   int64         // slots that are held, or were handed to one that waits
	Waiting int64         // requests in its line; parked jobs are not among them
	Oldest  time.Duration // for how long the first of them has waited
	Pinned  bool          // configuration files leave it alone
	Holders []SlotHolder  // the ones whose leases end first
	Err     error         // why it could not be read; then only the name is known, and Limit is -1
}

// SlotHolder holds a slot of a limit in flight.
type SlotHolder struct {
	ID     string        // as Acquire was told; for a job QUEUE/ID
	Client string        // the Client that holds it; empty: it was handed to a waiter that has not claimed it yet
	Held   time.Duration // since it got the slot
	Ends   time.Duration // until its lease ends, unless it is renewed
}

// InFlight returns how limits in flight stand, in the order of the names, each with at most so
// many holders. If the state of some makes no sense, the error is a [*SpoiltError] with these, and
// the others are returned with it. With any other error, those that could be read are returned, too.
func (f *Fleet) InFlight(ctx context.Context, holders int, names ...string) ([]SlotUsage, error) {
	for _, name := range names {
		if err := checkName(name); err != nil {
			return nil, err
		}
	}
	cmds := make([]*redis.Cmd, len(names))
	if len(names) > 1 {
		_, _ = f.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each reply has its own error
			for i, name := range names {
				cmds[i] = slots.PipeRead(ctx, p, name, holders)
			}
			return nil
		})
	}
	usages := make([]SlotUsage, len(names))
	var spoilt SpoiltError
	var unread []error
	for i, name := range names {
		var s slots.Standing
		var err error
		if cmds[i] == nil || redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
			s, _, err = slots.Read(ctx, f.rdb, name, holders)
		} else {
			s, _, err = slots.DecodeStanding(name, cmds[i].Val(), cmds[i].Err())
		}
		if err != nil {
			one := &throttle.Error{Limiter: name, Err: err}
			usages[i] = SlotUsage{Name: name, Limit: -1, Err: one}
			if errors.Is(err, throttle.ErrInvalidRate) || errors.Is(err, throttle.ErrWrongType) {
				spoilt.Limiters = append(spoilt.Limiters, one)
			} else {
				unread = append(unread, one)
			}
			continue
		}
		usages[i] = SlotUsage{Name: name, Limit: s.Slots, Lease: s.Lease, Taken: s.Taken, Waiting: s.Waiting, Oldest: s.Oldest, Pinned: s.Pinned}
		for _, h := range s.Holders {
			usages[i].Holders = append(usages[i].Holders, SlotHolder(h))
		}
	}
	if len(unread) == 0 && len(spoilt.Limiters) > 0 {
		return usages, &spoilt
	}
	return usages, errors.Join(unread...)
}

// MaxListed is how many limits in flight [Fleet.All] returns at most: a limit with a key has one for
// each value in use.
const MaxListed = 1000

// All returns the limiters and the limits in flight whose names match a pattern, in the syntax of
// [Fleet.Limiters]. The limits in flight come in the order of their names, without their holders,
// and at most [MaxListed] of them. An error that concerns one limit alone is in its Err.
func (f *Fleet) All(ctx context.Context, match string) (limiters []Listed, inFlight []SlotUsage, err error) {
	var names []string
	err = f.scan(ctx, match, func(page []Listed, slots []string) bool {
		limiters, names = append(limiters, page...), append(names, slots...)
		return true
	})
	if err != nil || len(names) == 0 {
		return limiters, nil, err
	}
	slices.Sort(names)
	names = slices.Compact(names)
	inFlight, err = f.InFlight(ctx, 0, names[:min(len(names), MaxListed)]...)
	if _, spoilt := errors.AsType[*SpoiltError](err); spoilt {
		err = nil
	}
	return limiters, inFlight, err
}
