package peer

import (
	"context"
	"errors"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// Jobthrottle is this project. Several limits are one Group.
type Jobthrottle struct {
	Addr string
	// NoPrefetch makes each Acquire ask Redis: limits get no guard, and without a guard a
	// client takes nothing ahead of demand.
	NoPrefetch bool
}

// Name is the peer's name in tables.
func (p Jobthrottle) Name() string {
	if p.NoPrefetch {
		return NameNoPrefetch
	}
	return NameJobthrottle
}

// Join makes a fleet of throttle.Clients.
func (p Jobthrottle) Join(ctx context.Context, w fleet.Work) (Fleet, error) {
	return fleet.Join(w, func(int) (fleet.Member, error) { return p.member(ctx, w) })
}

func (p Jobthrottle) member(ctx context.Context, w fleet.Work) (member fleet.Member, err error) {
	connections := 1 // it makes one call at a time for a limit
	if w.Apart {
		connections = w.Goroutines
	}
	rdb, err := connect(ctx, p.Addr, w, connections)
	if err != nil {
		return member, err
	}
	client, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		return member, errors.Join(err, rdb.Close())
	}
	member.Close = func() error { return errors.Join(client.Close(), rdb.Close()) }
	defer func() {
		if err != nil {
			err = errors.Join(err, member.Close())
		}
	}()

	var guard time.Duration // the default
	if p.NoPrefetch {
		guard = -1
	}
	limiterOf := func(l fleet.Limit) (*throttle.Limiter, error) {
		return client.LimiterWithRate(l.Name, throttle.Rate{Permits: l.Permits, Interval: l.Interval, Guard: guard, KeepAlive: l.KeepAlive})
	}
	if w.Apart {
		// A limiter for each request, as in a program that takes the name from a job.
		member.AcquireOf = func(ctx context.Context, limit int, n int64) error {
			limiter, err := limiterOf(w.Limits[limit])
			if err != nil {
				return err
			}
			return limiter.Acquire(ctx, n)
		}
		return member, nil
	}
	var limiters []*throttle.Limiter
	for _, l := range w.Limits {
		limiter, err := limiterOf(l)
		if err != nil {
			return member, err
		}
		limiters = append(limiters, limiter)
	}
	if len(limiters) == 1 {
		member.Acquire = limiters[0].Acquire
		return member, nil
	}
	group, err := client.Group(limiters...)
	if err != nil {
		return member, err
	}
	member.Acquire = group.Acquire
	return member, nil
}
