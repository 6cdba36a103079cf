// Package fleet is the load: clients with goroutines that acquire in a loop, and what they saw.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Limit is so many permits in any interval.
type Limit struct {
	Name     string
	Permits  int64
	Interval time.Duration
	// KeepAlive is how long the limit may be unused before it may vanish, for peers that do not
	// decide that themselves. Zero means forever.
	KeepAlive time.Duration
}

// Work is what a fleet does.
type Work struct {
	// Limits are acquired together. Peers that cannot do that acquire them in this order.
	Limits []Limit
	// Apart makes each request acquire from a single limit of Limits, at random.
	Apart bool
	// Clients represent processes: each has connections of its own.
	Clients int
	// Goroutines of each client acquire in a loop.
	Goroutines int
	// Cost is what a goroutine acquires at a time. Nil means one permit.
	Cost func(client, goroutine int) int64
	// Every is how often a goroutine asks at most. Zero means that it asks again at once.
	Every time.Duration
	// Length is how long the fleet works.
	Length time.Duration
}

// CostOf is what a goroutine acquires at a time.
func (w Work) CostOf(client, goroutine int) int64 {
	if w.Cost == nil {
		return 1
	}
	return w.Cost(client, goroutine)
}

// Use is permits that a caller got. There are millions of them, so its fields are as small as
// they can be.
type Use struct {
	At                time.Duration // since the fleet began
	Permits           int32
	Client, Goroutine uint16
}

// Member is one client of a fleet.
type Member struct {
	// Acquire acquires from all limits together, AcquireOf from the one with that index. A
	// member needs only what its work needs.
	Acquire   func(ctx context.Context, n int64) error
	AcquireOf func(ctx context.Context, limit int, n int64) error
	Close     func() error
}

// Fleet is members that are ready to work.
type Fleet struct {
	work    Work
	members []Member
}

// Join makes a fleet with a member for each of the work's clients. The caller has to Close it.
func Join(w Work, join func(client int) (Member, error)) (*Fleet, error) {
	f := &Fleet{work: w}
	for c := range w.Clients {
		m, err := join(c)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("client %d: %w", c, err), f.Close())
		}
		f.members = append(f.members, m)
	}
	return f, nil
}

// Close closes all members.
func (f *Fleet) Close() error {
	var all error
	for _, m := range f.members {
		all = errors.Join(all, m.Close())
	}
	return all
}

// Once lets the fleet acquire from each of its limits once. A fleet that works on many limits
// has usually used most of them before.
func (f *Fleet) Once(ctx context.Context) error {
	var (
		wg   sync.WaitGroup
		errs = make([]error, len(f.members)*f.work.Goroutines)
	)
	for i := range errs {
		m := f.members[i%len(f.members)]
		wg.Go(func() {
			for limit := i; limit < len(f.work.Limits) && errs[i] == nil; limit += len(errs) {
				errs[i] = m.AcquireOf(ctx, limit, 1)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Work lets the fleet work, and returns the uses in the order of their times.
func (f *Fleet) Work(ctx context.Context) ([]Use, error) {
	w := f.work
	// The end comes as a cancellation, not as a deadline: a peer that knew the end in advance
	// could avoid asking for what it cannot use any more.
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var (
		wg    sync.WaitGroup
		all   = make([][]Use, w.Clients*w.Goroutines)
		begin = time.Now()
		end   = time.AfterFunc(w.Length, func() { stop(nil) })
	)
	defer end.Stop()
	for c, m := range f.members {
		for g := range w.Goroutines {
			wg.Go(func() {
				mine, err := work(working, w, m, c, g, begin)
				if err != nil {
					stop(fmt.Errorf("client %d: %w", c, err))
				}
				all[c*w.Goroutines+g] = mine
			})
		}
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := context.Cause(working); !errors.Is(err, context.Canceled) {
		return nil, err
	}
	uses := slices.Concat(all...)
	slices.SortFunc(uses, func(a, b Use) int { return cmp.Compare(a.At, b.At) })
	return uses, nil
}

// work is one goroutine of a fleet. It returns only errors from the time in which the fleet was
// still to work.
func work(ctx context.Context, w Work, m Member, client, goroutine int, begin time.Time) (uses []Use, err error) {
	n := w.CostOf(client, goroutine)
	acquire := func() error { return m.Acquire(ctx, n) }
	if w.Apart {
		acquire = func() error { return m.AcquireOf(ctx, rand.IntN(len(w.Limits)), n) }
	}
	var next <-chan time.Time
	if w.Every > 0 {
		pace := time.NewTicker(w.Every)
		defer pace.Stop()
		next = pace.C
	}
	for {
		if err := acquire(); err != nil {
			if ctx.Err() != nil {
				return uses, nil
			}
			return uses, err
		}
		uses = append(uses, Use{time.Since(begin), int32(n), uint16(client), uint16(goroutine)})
		if w.Every > 0 {
			select {
			case <-next:
			case <-ctx.Done():
			}
		}
	}
}
