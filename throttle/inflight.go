package throttle

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/arrived"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
	"github.com/jobthrottle/jobthrottle/throttle/internal/slots"
)

// Slots is the configuration of an [InFlight].
type Slots struct {
	// Limit is how many holders have a slot at a time, over all processes: 1 to 1,000,000.
	Limit int64
	// Lease is for how long a slot stays taken when its process has died or cannot reach Redis:
	// 3s to 24h, in whole milliseconds. Zero is DefaultLease. While the process lives, it renews
	// its leases every third of that.
	Lease time.Duration
}

const (
	// DefaultLease is the Lease if Slots has none.
	DefaultLease = 15 * time.Second
	// MaxLease is the longest Lease.
	MaxLease = slots.MaxLease
)

// Validate returns an error that wraps [ErrInvalidSlots] and says what would be right.
func (s Slots) Validate() error {
	switch {
	case s.Limit < 1 || s.Limit > slots.MaxLimit:
		return fmt.Errorf("%w: %d slots, want 1 to %d", ErrInvalidSlots, s.Limit, slots.MaxLimit)
	case s.Lease == 0:
	case s.Lease < slots.MinLease || s.Lease > slots.MaxLease || s.Lease%time.Millisecond != 0:
		return fmt.Errorf("%w: a lease of %v, want %v to %v", ErrInvalidSlots, s.Lease, slots.MinLease, slots.MaxLease)
	}
	return nil
}

// InFlight limits how many run at a time, over all processes that use its name in the same Redis.
// A caller that gets a slot holds a [Lease] of it until [Lease.Release].
//
// At most [Slots.Limit] Leases have a context that has not ended, whatever dies, hangs or is cut
// off. That holds as long as Redis loses no write, and nobody sets Redis's clock forward by two
// thirds of a Lease, or by a twentieth of it while a holder cannot reach Redis. If somebody does,
// there can be up to Limit more, until the next renewal. If a machine is suspended, the Leases of
// its processes may end too late once it goes on, by up to a Lease.
//
// Whatever runs under a Lease has to heed its context. Slots are given in the order in which they
// were asked for, across processes. A slot that becomes free goes to the next one in line. If a
// holder dies, its slot is free when its lease has run out.
//
// An InFlight is safe for concurrent use.
type InFlight struct {
	c     *Client
	limit slots.Limit
}

// InFlight returns the limit in flight of that name. It makes no Redis call. The first
// [InFlight.Acquire] of a Client creates the limit in Redis, or changes it to s, unless an
// operator has pinned it. The name must not be that of a [Limiter]. The error is [ErrInvalidName]
// if no limit can have that name, and [ErrInvalidSlots] if no limit can have s.
func (c *Client) InFlight(name string, s Slots) (*InFlight, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil {
		return nil, &Error{Limiter: name, Err: err}
	}
	if s.Lease == 0 {
		s.Lease = DefaultLease
	}
	return &InFlight{c, slots.Limit{Name: name, Slots: s.Limit, Lease: s.Lease}}, nil
}

// Name is the limit's name, and the key of its configuration in Redis.
func (f *InFlight) Name() string { return f.limit.Name }

// Acquire waits for a slot until ctx ends. The id names the holder. A caller that comes with the
// same id takes the slot over, and the earlier Lease ends. If the earlier Lease is another
// process's, and may still be in use, Acquire waits until it has run out or was released. The
// slot stays with the id meanwhile. An id that is empty or longer than 1024 bytes is
// [ErrInvalidID]. If another caller comes with the same id while this one waits, the error is
// [ErrReentered].
func (f *InFlight) Acquire(ctx context.Context, id string) (*Lease, error) {
	g := &SlotGroup{c: f.c, slots: []*InFlight{f}}
	return g.AcquireEach(ctx, id)
}

// Lease is a slot of an [InFlight], or one of each of a [SlotGroup]. It is safe for concurrent
// use.
type Lease struct {
	lease *slots.Lease
	group *SlotGroup
}

// Context ends when the slot is released, lost, or can be lost at any time. Its cause
// ([context.Cause]) is [ErrReleased], [ErrLeaseEnded], [ErrReentered] or [ErrClosed]. Whatever
// runs under the Lease has to end then. Its Err compares this process's monotonic clock, so it is
// right also in a process that was stopped and goes on.
func (l *Lease) Context() context.Context { return l.lease.Context() }

// Release gives the slot back and waits until Redis has it or ctx ends: the slot goes back in
// either case. A Lease that was released, or has ended, may have lost its slot to another:
// Release does not touch that slot. An error names the limit that it concerns, or the first of
// several.
func (l *Lease) Release(ctx context.Context) error {
	if limit, err := l.lease.Release(ctx); err != nil {
		return l.group.failed(limit, err)
	}
	return nil
}

// SlotGroup is limits in flight that are acquired together, perhaps with the permits of a
// [Group]: from all of them, or from none. As long as others are in line for each of its limits,
// it may wait very long until all of them have a slot for it at once. It is safe for concurrent use.
type SlotGroup struct {
	c     *Client
	rates *Group // nil: none
	slots []*InFlight
}

// WithSlots returns the group with limits in flight, a [SlotGroup]: a caller gets permits of each
// limiter and a slot of each limit, or nothing. The limits must be different and of the group's
// Client, and on Redis Cluster share its {hash tag}, otherwise the error is [ErrInvalidGroup].
func (g *Group) WithSlots(fs ...*InFlight) (*SlotGroup, error) {
	names := make([]string, len(g.members))
	for i, l := range g.members {
		names[i] = l.name
	}
	return g.members[0].c.slotGroup(g, names, fs)
}

// SlotGroup returns limits in flight that are acquired together, without any permits. Its error
// is that of [Group.WithSlots].
func (c *Client) SlotGroup(fs ...*InFlight) (*SlotGroup, error) { return c.slotGroup(nil, nil, fs) }

func (c *Client) slotGroup(g *Group, names []string, fs []*InFlight) (*SlotGroup, error) {
	if len(fs) == 0 {
		return nil, fmt.Errorf("throttle: %w: no limits in flight", ErrInvalidGroup)
	}
	for _, f := range fs {
		bad := func(detail string) error {
			return &Error{Limiter: f.limit.Name, Err: ErrInvalidGroup, Detail: detail}
		}
		if f.c != c {
			return nil, bad("made by another Client")
		}
		for _, other := range names {
			if other == f.limit.Name {
				return nil, bad("twice in one group")
			}
			tag, _ := script.HashTag(f.limit.Name)
			if first, _ := script.HashTag(other); c.cluster && tag != first {
				return nil, bad(fmt.Sprintf("not in the slot of %q on Redis Cluster: give both names one {hash tag}", other))
			}
		}
		names = append(names, f.limit.Name)
	}
	return &SlotGroup{c: c, rates: g, slots: slices.Clone(fs)}, nil
}

const (
	// early is how long before its permits are due a request claims its slots: long enough for a
	// round trip to Redis.
	early = 20 * time.Millisecond
	// lateBy is for how long after that a request holds its slots at most while its permits do
	// not come: their limit was changed, or they came too late and are exchanged.
	lateBy = 200 * time.Millisecond
	// keepsFor is how long at most a request that has had its slots without its permits before keeps its
	// permits while it waits for its slots. If it gave them back at once, as others do, and others took both as
	// soon as they are free, it would find both only by chance. Permits that are too old by then are exchanged.
	keepsFor = 2 * time.Second
)

// AcquireEach waits for a slot of each limit in flight and for ns permits of the group's
// limiters, in the order in which the group was made, and takes them together. When it returns
// the permits may be used, now. A request that waits holds no slot, and stands in one line only:
// that of the limit that it waits for. If it had slots before, and no permits, one request at a time
// keeps permits for a while until it has slots again, at most 2 s or half an interval. The id is that of [InFlight.Acquire].
func (g *SlotGroup) AcquireEach(ctx context.Context, id string, ns ...int64) (*Lease, error) {
	if id == "" || len(id) > slots.MaxID {
		return nil, g.failed(0, fmt.Errorf("%w: %d bytes, want 1 to %d", ErrInvalidID, len(id), slots.MaxID))
	}
	told := arrived.SlotsOf(ctx)
	first := told.First
	if first == nil {
		first = new(atomic.Int64)
	}
	if g.rates == nil {
		if len(ns) > 0 {
			return nil, g.failed(0, fmt.Errorf("%w: there is no limiter to take permits of", ErrInvalidPermits))
		}
		return g.claim(ctx, id, first, told.Refused)
	}
	if _, err := g.rates.costs(ns); err != nil {
		return nil, err
	}
	// The permits come first: they are reserved while the request has no slot. If others already
	// wait for a slot, the slot comes first.
	missed := false
	for behind := g.c.slots.Crowded(g.limits()); ; behind, missed = false, true {
		lease, err := g.take(ctx, id, first, behind, missed, ns)
		if lease != nil || err != nil {
			return lease, err
		}
	}
}

// take takes slots and permits, or neither if the permits are too late for the slots. Then it
// returns nil, and the caller tries again, with the permits first. behind says that others wait for a
// slot, and missed that it had slots before.
func (g *SlotGroup) take(ctx context.Context, id string, first *atomic.Int64, behind, missed bool, ns []int64) (lease *Lease, err error) {
	var r *Reservation
	giveUp := func() {
		if r != nil {
			r.Cancel()
			r = nil
		}
	}
	defer func() {
		if lease == nil {
			giveUp()
		}
	}()
	if !behind {
		if r, err = g.rates.ReserveEach(ctx, endless, ns...); err != nil {
			return nil, err
		}
		if !r.OK() {
			return nil, &Error{Limiter: r.Limiter(), Err: ErrExceedsDeadline, Wait: r.Delay()}
		}
		if err := r.Near(ctx, early); err != nil {
			return nil, err
		}
	}
	var over *time.Timer
	held, err := g.claim(ctx, id, first, func() { // if it has to wait for a slot, the reservation goes back
		kept := r
		if kept == nil || !missed || !g.keeps() {
			giveUp()
			return
		}
		over = time.AfterFunc(min(keepsFor, kept.ticket.Span()/2), func() {
			g.keepsNoMore()
			kept.Cancel()
		})
	})
	switch {
	case over == nil:
	case over.Stop():
		g.keepsNoMore()
	default:
		giveUp()
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if lease == nil {
			held.lease.Free()
		}
	}()
	if r == nil {
		r, err = g.rates.ReserveEach(ctx, early, ns...)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return nil, nil // Redis has not answered by then
		}
		if err != nil || !r.OK() {
			return nil, err
		}
	}
	soon, cancel := context.WithTimeout(ctx, min(r.Delay(), early)+lateBy) // the limit may have been paused meanwhile
	defer cancel()
	if err := r.Wait(soon); err != nil {
		if ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrExceedsDeadline)) {
			return nil, nil
		}
		return nil, err
	}
	return held, nil
}

// keeps reports whether a request keeps its permits while it waits for these slots: no other request of
// the Client does, until it calls keepsNoMore.
func (g *SlotGroup) keeps() bool {
	_, another := g.c.keeps.LoadOrStore(g.names(), nil)
	return !another
}

func (g *SlotGroup) keepsNoMore() { g.c.keeps.Delete(g.names()) }

func (g *SlotGroup) names() string {
	names := make([]string, len(g.slots))
	for i, f := range g.slots {
		names[i] = f.limit.Name
	}
	return strings.Join(names, "\n")
}

// endless is a wait that ends only with its context.
const endless time.Duration = math.MaxInt64

func (g *SlotGroup) limits() []slots.Limit {
	limits := make([]slots.Limit, len(g.slots))
	for i, f := range g.slots {
		limits[i] = f.limit
	}
	return limits
}

// claim waits for the slots. It calls refused, if that is not nil, when they are not free.
func (g *SlotGroup) claim(ctx context.Context, id string, first *atomic.Int64, refused func()) (*Lease, error) {
	lease, limit, err := g.c.slots.Acquire(ctx, g.limits(), id, first, refused)
	if err != nil {
		return nil, g.failed(limit, err)
	}
	return &Lease{lease, g}, nil
}

// failed is the error that names a limit.
func (g *SlotGroup) failed(limit int, err error) error {
	switch {
	case errors.Is(err, slots.ErrRated):
		err = fmt.Errorf("%w: %w", ErrInvalidSlots, err)
	case errors.Is(err, script.ErrInvalidRate):
		what := "its configuration in Redis makes no sense"
		if field, ok := errors.AsType[script.FieldError](err); ok {
			what = field.Error()
		}
		err = fmt.Errorf("%w: %s: a process that starts corrects it with its first Acquire", ErrInvalidSlots, what)
	}
	return &Error{Limiter: g.slots[limit].limit.Name, Err: err}
}
