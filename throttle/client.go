package throttle

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// closeTimeout bounds how long Close tries to give places back.
const closeTimeout = time.Second

// Options of a Client. The zero value is ready for use.
type Options struct {
	// ID is what PER_CLIENT limits are keyed by. Defaults to a new UUIDv4.
	// Two Clients with one ID share one PER_CLIENT quota; a process that keeps
	// its ID over a restart keeps its usage.
	ID string
	// Cluster says that rdb leads to a Redis Cluster, where the members of a
	// Group must share a hash tag. Defaults to whether rdb is a
	// *redis.ClusterClient; set it for one that is wrapped.
	Cluster bool
}

// Client is one process's view of the limiters in a Redis. All waiters of a
// limiter in one Client share one queue and its calls: make one Client a
// process, not one a request. Its methods may be called concurrently.
type Client struct {
	rdb     redis.Scripter
	id      string
	nonce   string // tells this Client from others with the same ID
	cluster bool
	heeds   bool // rdb heeds the deadlines of calls

	ctx      context.Context // ends when Close has given back what was held
	cancel   context.CancelFunc
	wg       sync.WaitGroup // the queues' runners, callers that make calls, and who listens for changes
	changes  changes
	punctual punctual

	first   sync.Once
	met     atomic.Bool                // Redis has answered a call
	firstAt time.Time                  // when the first call was made, for whoever had an answer
	way     atomic.Pointer[roundTrips] // what the first queue learnt of the way to Redis

	mu     sync.Mutex
	closed bool
	queues map[string]*queue
	tidyAt int // number of queues at which idle ones are looked for

	reserved sync.Map // of each limiter by its name, what all queues together have reserved: *atomic.Int64

	keyNo atomic.Uint64
	counters
}

// New returns a Client for the limiters in rdb, which remains the caller's to
// close. It makes no Redis call. The connection pool of rdb should not be
// smaller than the number of limiters that are asked at the same time. Where
// rdb heeds deadlines (ContextTimeoutEnabled of its options), a request that
// meets no other makes its call itself, which is sooner done.
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
	if len(id) > maxName || !printable(id) || strings.ContainsAny(id, "{}") {
		return nil, fmt.Errorf("throttle: client id %q: want at most %d printable characters and no braces", clip(id), maxName)
	}
	nonce := make([]byte, 8)
	if _, err := rand.Read(nonce); err != nil {
		return nil, fmt.Errorf("throttle: make a client nonce: %w", err)
	}
	_, cluster := rdb.(*redis.ClusterClient)
	ctx, cancel := context.WithCancel(context.Background())
	return &Client{
		rdb:     rdb,
		id:      id,
		nonce:   hex.EncodeToString(nonce),
		cluster: cluster || opts.Cluster,
		heeds:   heedsDeadlines(rdb),
		ctx:     ctx,
		cancel:  cancel,
		queues:  make(map[string]*queue),
		tidyAt:  64,
	}, nil
}

// ID is what this Client's PER_CLIENT limits are keyed by.
func (c *Client) ID() string { return c.id }

// Limiter returns the limiter of that name, which must have been given a rate
// by SetRate, TrySetRate, a worker's configuration or a Redisson client before
// permits can be had. It makes no Redis call. Limiters of the same name share
// one queue of waiters.
func (c *Client) Limiter(name string) (*Limiter, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	return &Limiter{c: c, name: name, keys: limiterKeys(name, c.id)}, nil
}

// LimiterWithRate is Limiter, and whatever asks this limiter for permits
// creates it with r, in the same script, where Redis does not have it.
func (c *Client) LimiterWithRate(name string, r Rate) (*Limiter, error) {
	l, err := c.Limiter(name)
	if err != nil {
		return nil, err
	}
	if err := r.Validate(); err != nil {
		return nil, &Error{Limiter: clip(name), Err: err}
	}
	l.create = strings.Join(r.fields(), ":")
	return l, nil
}

// Group returns limiters that are acquired together, in one atomic step, or
// not at all. On Redis Cluster their names must share a {hash tag}; members
// must be different and of this Client, else the error is ErrInvalidGroup.
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
		for _, other := range ls[:i] {
			if other.name == l.name {
				return nil, bad("twice in one group")
			}
			tag, _ := hashTag(l.name)
			if first, _ := hashTag(other.name); c.cluster && tag != first {
				return nil, bad(fmt.Sprintf("not in the slot of %q on Redis Cluster: give both names one {hash tag}", other.name))
			}
		}
	}
	return &Group{c: c, members: slices.Clone(ls)}, nil
}

// enter returns the one queue for these limiters, which the caller must leave.
// last remembers it for the next time.
func (c *Client) enter(last *atomic.Pointer[queue], ls ...*Limiter) *queue {
	if q := last.Load(); q != nil && q.enter() {
		return q
	}
	key := ls[0].name
	if len(ls) > 1 {
		names := make([]string, len(ls))
		for i, l := range ls {
			names[i] = l.name
		}
		key = strings.Join(names, "\x00")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[key]
	if q == nil {
		if len(c.queues) >= c.tidyAt {
			c.tidy()
		}
		q = newQueue(c, ls)
		if c.closed {
			q.close()
		}
		c.queues[key] = q
	}
	q.enter()
	last.Store(q)
	return q
}

// tidy forgets the queues that are idle, and what was reserved of limiters that
// no queue has any more: nothing.
func (c *Client) tidy() {
	maps.DeleteFunc(c.queues, func(_ string, q *queue) bool { return q.retire() })
	c.tidyAt = max(64, 2*len(c.queues))
	has := make(map[string]bool)
	for _, q := range c.queues {
		for _, l := range q.members {
			has[l.name] = true
		}
	}
	c.reserved.Range(func(name, _ any) bool {
		if !has[name.(string)] {
			c.reserved.Delete(name)
		}
		return true
	})
}

// reservedOf is what all queues of the client have reserved of a limiter.
func (c *Client) reservedOf(l *Limiter) *atomic.Int64 {
	n, _ := c.reserved.LoadOrStore(l.name, new(atomic.Int64))
	return n.(*atomic.Int64)
}

// replyKey is a key of a limiter that nobody had before, for a reply.
func (c *Client) replyKey(l *Limiter) string {
	return keyPrefix(l.name) + ":reply:" + c.nonce + ":" + strconv.FormatUint(c.keyNo.Add(1), 36)
}

// changed lets the waiters of every queue that has the limiter ask anew.
func (c *Client) changed(name string) { c.each(name, (*queue).doubt) }

// each calls do for every queue that has the limiter.
func (c *Client) each(name string, do func(*queue)) {
	c.mu.Lock()
	queues := slices.Collect(maps.Values(c.queues))
	c.mu.Unlock()
	for _, q := range queues {
		if slices.ContainsFunc(q.members, func(l *Limiter) bool { return l.name == name }) {
			do(q)
		}
	}
}

// Close ends every wait with ErrClosed, gives back what is reserved and not
// yet due, and waits until all goroutines of the Client have ended. It does not
// close the Redis client. Places that could not be given back within a second
// are named in the error: they count as used.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		c.wg.Wait()
		return nil
	}
	c.closed = true
	queues := slices.Collect(maps.Values(c.queues))
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(c.ctx, closeTimeout)
	defer cancel()
	var failed error
	for _, q := range queues {
		q.close()
	}
	for _, q := range queues {
		if err := q.flush(ctx); err != nil && failed == nil {
			failed = &Error{Limiter: q.members[0].name, Err: fmt.Errorf("give back what is reserved: %w", err)}
		}
	}
	c.cancel()
	c.wg.Wait()
	return failed
}
