// Package driver runs lines: it has their locks, goroutines and timers, makes their calls and
// tells their waiters. Package line decides what is done, and when.
package driver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// closeTimeout bounds how long Close tries to give reservations back.
const closeTimeout = time.Second

const (
	// idleLines is how many lines are kept although nobody waits in them: some 3 KB each.
	// Making one again costs as much as two requests.
	idleLines = 1 << 14
	// tidied is how many lines are checked, and forgotten if they are idle, when there are
	// idleLines already and another comes.
	tidied = 4
	// knownLimiters is how many more limiters' configurations a client remembers: some 300
	// bytes each, which save a call by the long way.
	knownLimiters = 1 << 17
)

// wayEvery is how often at most a line that is forgotten leaves its round trips to new lines.
const wayEvery = time.Second

// longAgo is how old a Client's clock seems to be at the beginning: a Local of zero is longer
// ago than any interval.
const longAgo = 10 * 365 * 24 * time.Hour

// Config is what New needs to make a Client.
type Config struct {
	Redis redis.Scripter
	ID    string
	// Cluster says that limiters may be on different servers, whatever Redis is.
	Cluster bool
	// Fail makes an error of an answer that is an error or a denial. A Client that only
	// changes limiters needs none.
	Fail func(limiter string, a line.Answer) error
	// Heard, if not nil, is told the name of a limiter that was changed, or whose
	// permits were released.
	Heard func(limiter string)
}

// Client is what all lines of a throttle.Client share.
type Client struct {
	Config
	Counters

	nonce string // tells this Client from others with the same ID
	heeds bool   // the Redis client heeds the deadlines of calls
	start time.Time

	ctx      context.Context // ends when Close has given back what was held
	cancel   context.CancelFunc
	wg       sync.WaitGroup // runners, callers that make calls, and what listens for changes
	changes  changes
	punctual punctual
	sharing  sharing
	clock    *line.Furthest // of Redis; nil: each limiter may be on its own server

	answered  atomic.Bool                     // Redis has answered a call
	firstCall atomic.Int64                    // when the first call was made, a line.Local; 0: not yet
	way       atomic.Pointer[line.RoundTrips] // the round trips to Redis that another line measured

	mu     sync.Mutex
	closed bool
	over   chan struct{} // closed when Close is done
	queues map[string]*queue
	known  map[string]line.Memory // what forgotten lines knew
	wayAt  line.Local             // when one of them last left its round trips

	limiters map[string]*limiter // those of all lines, by name

	reporters reporters     // of limiters that adapt
	reports   atomic.Uint64 // how many reports so far

	keyNo atomic.Uint64
	given atomic.Uint64 // how many configurations to create limiters with
}

// Counters are what throttle.Stats shows.
type Counters struct {
	Calls, Grants, Denials, Stale, Late, Waiting, Errors atomic.Int64
	LastFailure                                          atomic.Pointer[Failure]
}

// Failure is why a script call failed, and when.
type Failure struct {
	Err error
	At  time.Time
}

// Member is a limiter of a line.
type Member struct {
	Name   string
	Create string // the configuration to create it with, or ""

	given uint64 // the number of this configuration: the latest counts
}

// Member returns a limiter that is created with that configuration, or is not created if that
// is "".
func (c *Client) Member(name, create string) Member {
	m := Member{Name: name, Create: create}
	if create != "" {
		m.given = c.given.Add(1)
	}
	return m
}

// New makes no call, and starts nothing: a Client need not be closed if nobody has asked its
// lines for permits.
func New(c Config) *Client {
	nonce := make([]byte, 8)
	_, _ = rand.Read(nonce) // it always fills it
	ctx, cancel := context.WithCancel(context.Background())
	client := &Client{
		Config: c, nonce: hex.EncodeToString(nonce), heeds: heedsDeadlines(c.Redis), start: time.Now().Add(-longAgo),
		ctx: ctx, cancel: cancel, over: make(chan struct{}), queues: make(map[string]*queue), limiters: make(map[string]*limiter), known: make(map[string]line.Memory),
	}
	client.sharing.c, client.sharing.able = client, !c.Cluster && sharesCalls(c.Redis)
	if client.sharing.able {
		client.clock = new(line.Furthest)
	}
	return client
}

func (c *Client) now() line.Local { return line.Local(time.Since(c.start)) }

// local converts a time that this process's clock showed.
func (c *Client) local(t time.Time) line.Local { return line.Local(t.Sub(c.start)) }

// endless is a wait that only its context ends.
const endless time.Duration = math.MaxInt64

// until is when a wait that begins now has to end, or zero if that is too far ahead for a
// line.Local. A deadline of ctx may come from elsewhere and have no monotonic clock: what
// counts is how long it is until then.
func until(ctx context.Context, now line.Local, wait time.Duration) line.Local {
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	return max(now.Add(max(wait, 0)), 0) // it may have overflowed
}

// Call runs a script for a caller, and counts the call. Once Close was called it makes none: the
// error is ErrClosed.
func (c *Client) Call(ctx context.Context, s *redis.Script, keys []string, args ...any) (any, error) {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return nil, line.ErrClosed
	}
	reply, _, err := c.call(ctx, s, keys, args)
	return reply, err
}

// CallAt runs a script, also while Close waits for it. It counts the call, and returns when the
// call that was answered was sent.
func (c *Client) CallAt(ctx context.Context, s *redis.Script, keys []string, args ...any) (any, time.Time, error) {
	reply, sent, err := c.call(ctx, s, keys, args)
	return reply, c.start.Add(time.Duration(sent)), err
}

// call runs a script and counts the call. It returns when the call that was answered was sent.
func (c *Client) call(ctx context.Context, s *redis.Script, keys []string, args []any) (any, line.Local, error) {
	c.Calls.Add(1)
	if c.firstCall.Load() == 0 {
		c.firstCall.CompareAndSwap(0, int64(c.now()))
	}
	reply, sent, err := script.Call(ctx, c.Redis, s, keys, args...)
	if err != nil && ctx.Err() == nil { // else the caller has given up
		c.Errors.Add(1)
		c.LastFailure.Store(&Failure{err, time.Now()})
	}
	if err == nil || !script.Transient(err) {
		c.answered.Store(true)
	}
	return reply, c.local(sent), err
}

// tidy forgets idle queues if there are many: a few at a time, in any order.
func (c *Client) tidy() {
	if len(c.queues) < idleLines {
		return
	}
	n := 0
	for key, q := range c.queues {
		if n == tidied {
			return
		}
		n++
		c.forget(key, q)
	}
}

// forget forgets a queue if it is idle, except what it knows of its limiter. It also forgets
// the limiters that no other queue has: nothing of them is reserved.
func (c *Client) forget(key string, q *queue) {
	idle, m, ok := q.retire()
	if !idle {
		return
	}
	delete(c.queues, key)
	if ok {
		c.remember(key, m)
	}
	for i, l := range q.limiters {
		if l.queues = slices.DeleteFunc(l.queues, func(other *queue) bool { return other == q }); len(l.queues) == 0 {
			delete(c.limiters, q.members[i].Name)
		}
	}
	if now := c.now(); now.Sub(c.wayAt) > wayEvery {
		way := q.line.Way()
		c.wayAt = now
		c.way.Store(&way)
	}
}

func (c *Client) remember(key string, m line.Memory) {
	if len(c.known) >= knownLimiters {
		for other := range c.known { // any
			delete(c.known, other)
			break
		}
	}
	c.known[key] = m
}

// Forget forgets the idle lines, and returns how many lines are left.
func (c *Client) Forget() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, q := range c.queues {
		c.forget(key, q)
	}
	return len(c.queues)
}

// limiter is what all queues of a client share about one limiter.
type limiter struct {
	queues   []*queue // of the lines that have it; guarded by the client's mutex
	reserved atomic.Int64
	latest   atomic.Pointer[Member] // the latest of the members with a configuration to create it
}

// limiter returns the limiter of a member, for the line of one more queue. The mutex is held.
func (c *Client) limiter(m Member, q *queue) *limiter {
	l := c.limiters[m.Name]
	if l == nil {
		l = new(limiter)
		c.limiters[m.Name] = l
	}
	l.queues = append(l.queues, q)
	return l
}

// give has a limiter created as a member says, if nobody has said otherwise since.
// The client's mutex is held.
func (l *limiter) give(m Member) {
	if had := l.latest.Load(); m.given > 0 && (had == nil || had.given < m.given) {
		latest := m // a copy, which no other case needs
		l.latest.Store(&latest)
	}
}

// create is the configuration to create it with, or "".
func (l *limiter) create() string {
	if m := l.latest.Load(); m != nil {
		return m.Create
	}
	return ""
}

// replyKey returns a key of a limiter for a reply, which nobody has had before.
func (c *Client) replyKey(m Member) string {
	return script.Prefix(m.Name) + ":reply:" + c.nonce + ":" + strconv.FormatUint(c.keyNo.Add(1), 36)
}

// Now is the present time as the lines know it.
func (c *Client) Now() line.Local { return c.now() }

// At is a time that this process's clock showed, as the lines know it.
func (c *Client) At(t time.Time) line.Local { return c.local(t) }

// each has an event happen to every line that has the limiter.
func (c *Client) each(name string, what line.Kind) {
	for _, q := range c.queuesOf(name) {
		q.happens(what)
	}
}

// queuesOf returns the queues of every line that has the limiter.
func (c *Client) queuesOf(name string) []*queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.limiters[name]; l != nil {
		return slices.Clone(l.queues)
	}
	return nil
}

func (c *Client) allQueues() []*queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.queues))
}

// Close ends every wait with ErrClosed, gives back what is reserved and not yet due, and
// waits until all goroutines have ended. If a line could not give its reservations back
// within a second, they count as used, and the error names the first limiter of one such
// line.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.over
		return nil
	}
	c.closed = true
	defer close(c.over)
	queues := slices.Collect(maps.Values(c.queues))
	c.mu.Unlock()

	for _, q := range queues {
		q.happens(line.Close)
	}
	ctx, cancel := context.WithTimeout(c.ctx, closeTimeout) // for all of them: what they give back is on its way by now
	defer cancel()
	var failed error
	for _, q := range queues {
		if err := q.flush(ctx); err != nil && failed == nil {
			failed = c.Fail(q.members[0].Name, line.Answer{Err: fmt.Errorf("give back what is reserved: %w", err)})
		}
	}
	c.cancel()
	c.wg.Wait()
	return failed
}
