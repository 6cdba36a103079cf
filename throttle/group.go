package throttle

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/driver"
)

// Group is several limiters acquired in one step: "100/s for the fleet, 25/s for each worker and
// 10/s for this account" is one script in which all members grant, for the same time, or none
// does. A refusal names the member that refused. A Group is safe for concurrent use.
type Group struct {
	members []*Limiter
	line    *driver.Entry
}

// fits refuses anything except one number for each member.
func (g *Group) fits(ns []int64) error {
	if len(ns) == len(g.members) {
		return nil
	}
	return &Error{Limiter: g.members[0].name, Err: ErrInvalidPermits,
		Detail: fmt.Sprintf("%d numbers of permits for %d limiters", len(ns), len(g.members))}
}

// costs checks the permits asked of each member.
func (g *Group) costs(ns []int64) ([]int64, error) {
	if err := g.fits(ns); err != nil {
		return nil, err
	}
	for i, n := range ns {
		if n < 1 {
			return nil, &Error{Limiter: g.members[i].name, Err: ErrInvalidPermits, Detail: strconv.FormatInt(n, 10) + ", want at least 1"}
		}
	}
	return slices.Clone(ns), nil
}

// all is n permits of every member.
func (g *Group) all(n int64) []int64 {
	ns := make([]int64, len(g.members))
	for i := range ns {
		ns[i] = n
	}
	return ns
}

// TryAcquire is [Limiter.TryAcquire] for n permits of every member.
func (g *Group) TryAcquire(ctx context.Context, n int64) (bool, error) {
	return g.TryAcquireFor(ctx, n, 0)
}

// TryAcquireFor is [Limiter.TryAcquireFor] for n permits of every member.
func (g *Group) TryAcquireFor(ctx context.Context, n int64, timeout time.Duration) (bool, error) {
	return g.TryAcquireEach(ctx, timeout, g.all(n)...)
}

// TryAcquireEach is [Group.TryAcquireFor] with a cost for each member, in the order in which the
// group was made. With a timeout of zero it is [Group.TryAcquire]. If there is not one cost for
// each member, or a cost is less than 1, the error is [ErrInvalidPermits].
func (g *Group) TryAcquireEach(ctx context.Context, timeout time.Duration, ns ...int64) (bool, error) {
	ns, err := g.costs(ns)
	if err != nil {
		return false, err
	}
	return g.line.Try(ctx, ns, timeout)
}

// Acquire is [Limiter.Acquire] for n permits of every member.
func (g *Group) Acquire(ctx context.Context, n int64) error {
	return g.AcquireEach(ctx, g.all(n)...)
}

// AcquireEach is [Group.Acquire] with a cost for each member, in the order in which the group was
// made. If there is not one cost for each member, or a cost is less than 1, the error is
// [ErrInvalidPermits].
func (g *Group) AcquireEach(ctx context.Context, ns ...int64) error {
	ns, err := g.costs(ns)
	if err != nil {
		return err
	}
	return g.line.Acquire(ctx, ns)
}

// Reserve is [Limiter.Reserve] for n permits of every member.
func (g *Group) Reserve(ctx context.Context, n int64, maxWait time.Duration) (*Reservation, error) {
	return g.ReserveEach(ctx, maxWait, g.all(n)...)
}

// ReserveEach is [Group.Reserve] with a cost for each member. Its errors are also those of
// [Group.AcquireEach].
func (g *Group) ReserveEach(ctx context.Context, maxWait time.Duration, ns ...int64) (*Reservation, error) {
	ns, err := g.costs(ns)
	if err != nil {
		return nil, err
	}
	return reservation(g.line.Reserve(ctx, ns, maxWait))
}

// Release is [Limiter.Release] for n permits of every member: it takes effect for all or for
// none.
func (g *Group) Release(ctx context.Context, n int64) error {
	return g.ReleaseEach(ctx, g.all(n)...)
}

// ReleaseEach is [Group.Release] with a number for each member, which may be zero. If there is
// not one number for each member, or a number is negative, the error is [ErrInvalidPermits].
func (g *Group) ReleaseEach(ctx context.Context, ns ...int64) error {
	if err := g.fits(ns); err != nil {
		return err
	}
	names := make([]string, len(g.members))
	for i, l := range g.members {
		names[i] = l.name
	}
	ns, err := releasable(names, ns)
	if err != nil || ns == nil {
		return err
	}
	return g.line.Release(ctx, ns)
}

// Pause pauses every member, one after the other, as [Limiter.Pause] does. It ends at the first
// error.
func (g *Group) Pause(ctx context.Context, d time.Duration) error {
	for _, l := range g.members {
		if err := l.Pause(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// Resume ends the pause of every member, one after the other. It ends at the first error.
func (g *Group) Resume(ctx context.Context) error {
	for _, l := range g.members {
		if err := l.Resume(ctx); err != nil {
			return err
		}
	}
	return nil
}
