package throttle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/driver"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
	"github.com/jobthrottle/jobthrottle/throttle/internal/slots"
	"github.com/jobthrottle/jobthrottle/throttle/internal/tenants"
)

// Options of a [Client]. The zero value is ready for use.
type Options struct {
	// ID is what PER_CLIENT limits are keyed by. The default is a new UUIDv4. Two Clients with
	// one ID share one PER_CLIENT quota. A process that keeps its ID over a restart keeps its
	// usage. An ID has at most 512 bytes, no control characters and no braces.
	ID string
	// Cluster says that rdb leads to a Redis Cluster, where the members of a Group must share a
	// hash tag. The default is whether rdb is a *redis.ClusterClient: set it for one that is
	// wrapped.
	Cluster bool
}

// Client is one process's view of the limiters in a Redis. All waiters of a [Limiter] in one
// Client share one queue and its calls: make one Client per process, not one per request. Its
// methods may be called concurrently.
type Client struct {
	core    *driver.Client
	slots   *slots.Keeper
	tenants *tenants.Keeper
	cluster bool
	latest  atomic.Pointer[rateText]
	keeps   sync.Map // the limits in flight for which one SlotGroup keeps permits while it waits for a slot
}

// New returns a [Client] for the limiters in rdb. The caller still has to close rdb. New makes no
// Redis call. The connection pool of rdb should not be smaller than the number of limiters that
// are asked at the same time. If rdb heeds deadlines (ContextTimeoutEnabled in its options), a
// request that finds no other in its queue makes its call itself, which is faster.
func New(rdb redis.Scripter, opts Options) (*Client, error) {
	if rdb == nil {
		return nil, fmt.Errorf("throttle: New needs a Redis client")
	}
	id := opts.ID
	if id == "" {
		u, err := uuid.NewRandom()
		if err != nil {
			return nil, fmt.Errorf("throttle: make a client id: %w", err)
		}
		id = u.String()
	}
	if len(id) > script.MaxName || !script.Printable(id) || strings.ContainsAny(id, "{}") {
		return nil, fmt.Errorf("throttle: client id %q: want at most %d printable characters and no braces", script.Clip(id), script.MaxName)
	}
	_, isCluster := rdb.(*redis.ClusterClient)
	cluster := isCluster || opts.Cluster
	var sharing *tenants.Keeper
	core := driver.New(driver.Config{Redis: rdb, Cluster: cluster, ID: id, Fail: failure, Heard: func(limiter string) { sharing.Heard(limiter) }})
	sharing = tenants.New(tenants.Around{ID: id, Now: core.Now, At: core.At, Call: core.CallAt, Listen: core.Listen})
	keeper := slots.New(rdb, id, func(ctx context.Context, s *redis.Script, keys []string, args ...any) (any, time.Time, error) {
		return core.CallAt(ctx, s, keys, args...)
	})
	return &Client{core: core, slots: keeper, tenants: sharing, cluster: cluster}, nil
}

// ID is what this Client's limits of type [PerClient] are keyed by.
func (c *Client) ID() string { return c.core.ID }

// Limiter returns the limiter of that name. Before anybody can get permits, the limiter needs a
// rate: from [Limiter.SetRate], [Limiter.TrySetRate], a worker's configuration or a Redisson
// client. Limiter makes no Redis call. Limiters of the same name share one queue of waiters. If
// no limiter can have that name, the error is [ErrInvalidName].
func (c *Client) Limiter(name string) (*Limiter, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	return c.limiter(name, ""), nil
}

// checkName returns an ErrInvalidName for a name that no limiter can have.
func checkName(name string) error {
	if why := script.CheckName(name); why != "" {
		return &Error{Limiter: script.Clip(name), Err: ErrInvalidName, Detail: why}
	}
	return nil
}

func (c *Client) limiter(name, create string) *Limiter {
	m := c.core.Member(name, create)
	return &Limiter{c: c, name: name, member: m, line: c.core.Entry(m)}
}

// LimiterWithRate is [Client.Limiter], except that a request for permits of this limiter creates
// it with r, in the same script, if Redis does not have it. If limiters of one name have
// different rates, the one that was made last counts, among those that were asked for permits. A
// plain Limiter of that name shares their queue, so its requests create the limiter, too, as long
// as the Client keeps that queue: it forgets idle queues when it has more than about 16,000. If
// no limiter can have r, the error is [ErrInvalidRate].
func (c *Client) LimiterWithRate(name string, r Rate) (*Limiter, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := r.Validate(); err != nil {
		return nil, &Error{Limiter: script.Clip(name), Err: err}
	}
	return c.limiter(name, c.text(r)), nil
}

// text is a rate as text, as a script takes it that creates a limiter. Limiters with keys are
// made one by one, mostly with the same rate, so the latest text is kept.
func (c *Client) text(r Rate) string {
	if t := c.latest.Load(); t != nil && t.rate == r {
		return t.text
	}
	t := &rateText{r, strings.Join(r.fields(), ":")}
	c.latest.Store(t)
	return t.text
}

type rateText struct {
	rate Rate
	text string
}

// Group returns limiters that are acquired together, in one atomic step, or not at all. On Redis
// Cluster their names must share a {hash tag}. The members must be different and of this Client,
// otherwise the error is [ErrInvalidGroup].
func (c *Client) Group(ls ...*Limiter) (*Group, error) {
	if len(ls) == 0 {
		return nil, fmt.Errorf("throttle: %w: no members", ErrInvalidGroup)
	}
	for i, l := range ls {
		bad := func(detail string) error {
			return &Error{Limiter: l.name, Err: ErrInvalidGroup, Detail: detail}
		}
		if l.c != c {
			return nil, bad("made by another Client")
		}
		if l.tenant != nil {
			return nil, bad("asks for a tenant: groups know none")
		}
		for _, other := range ls[:i] {
			if other.name == l.name {
				return nil, bad("twice in one group")
			}
			tag, _ := script.HashTag(l.name)
			if first, _ := script.HashTag(other.name); c.cluster && tag != first {
				return nil, bad(fmt.Sprintf("not in the slot of %q on Redis Cluster: give both names one {hash tag}", other.name))
			}
		}
	}
	members := make([]driver.Member, len(ls))
	for i, l := range ls {
		members[i] = l.member
	}
	return &Group{members: slices.Clone(ls), line: c.core.Entry(members...)}, nil
}

// Close ends every wait with [ErrClosed], and from then on the methods of the Client's limiters
// return it at once. Close gives back reservations that are not yet due, and waits
// until all goroutines of the Client have ended. The contexts of all leases end, but their slots
// become free only when the leases run out: call [Lease.Release] before Close. Close does not
// close the Redis client. If reservations cannot be given back within a second, the error names
// the first limiter concerned: they count as used.
func (c *Client) Close() error {
	c.slots.Close()
	c.tenants.Close()
	return c.core.Close()
}
