// Package slots is the limits in flight: how many hold a slot at a time, over all processes.
// Redis decides, in one script for everything that a process asks of some limits (lua/). This
// package has the queues of those who wait in this process, the leases that the process holds,
// and what renews them.
//
// A lease ends by Redis's clock. The process that holds it knows by its own monotonic clock when
// that can be at the earliest, and ends the lease's context before that.
package slots

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// The errors with which leases and waits end.
var (
	ErrClosed    = line.ErrClosed
	ErrEnded     = errors.New("the lease has ended")
	ErrReentered = errors.New("another holder has come with the same id")
)

// holder identifies a holder of a slot, of the limits of a queue.
type holder struct {
	q  *queue
	id string
}

// Call runs a script and says when the request was sent that Redis answered.
type Call func(ctx context.Context, s *redis.Script, keys []string, args ...any) (reply any, sent time.Time, err error)

// Keeper has everything that one Client has of limits in flight.
type Keeper struct {
	rdb    redis.Scripter
	call   Call
	client string
	nonce  string

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	claims atomic.Uint64
	heard  atomic.Bool  // the subscription works: this process hears of slots that are handed to it
	busy   atomic.Int64 // queues that have something to do

	mu        sync.Mutex
	closed    bool
	queues    map[string]*queue // by the names of their limits
	tokens    map[string]*queue
	applied   map[string]Limit // limits that this process has applied
	made      uint64           // how many queues were made
	listens   bool
	leases    map[holder]*Lease
	over      bool          // no goroutine may be started any more
	renews    bool          // the goroutine that renews runs
	renewNext time.Time     // when it runs next
	renewNow  chan struct{} // a lease has to be renewed before that
}

// New makes no call, and starts nothing.
func New(rdb redis.Scripter, client string, call Call) *Keeper {
	nonce := make([]byte, 8)
	_, _ = rand.Read(nonce) // it always fills it
	ctx, cancel := context.WithCancel(context.Background())
	return &Keeper{
		rdb: rdb, call: call, client: strings.ReplaceAll(client, " ", "_"), nonce: hex.EncodeToString(nonce), ctx: ctx, cancel: cancel,
		queues: map[string]*queue{}, tokens: map[string]*queue{}, applied: map[string]Limit{}, leases: map[holder]*Lease{}, renewNow: make(chan struct{}, 1),
	}
}

// maxIdle is how many queues are kept even if nobody waits in them and nothing is held.
const maxIdle = 4096

// keyOf is the key of the queue of these limits.
func keyOf(limits []Limit) string {
	if len(limits) == 1 {
		return limits[0].Name
	}
	names := make([]string, len(limits))
	for i, l := range limits {
		names[i] = l.Name
	}
	return strings.Join(names, "\x00")
}

// enter returns the queue of these limits. The caller must leave it. The queue's next call
// applies what is new in their configuration.
func (k *Keeper) enter(limits []Limit) (*queue, error) {
	key := keyOf(limits)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, ErrClosed
	}
	q := k.queues[key]
	if q == nil {
		if len(k.queues) >= maxIdle {
			k.tidy()
		}
		k.made++
		q = newQueue(k, limits, k.nonce+"-"+strconv.FormatUint(k.made, 36))
		k.queues[key], k.tokens[q.token] = q, q
	}
	q.users++
	return q, nil
}

// tidy forgets the queues that nobody uses.
func (k *Keeper) tidy() {
	for key, q := range k.queues {
		if q.users == 0 {
			delete(k.queues, key)
			delete(k.tokens, q.token)
		}
	}
	if len(k.applied) > 4*maxIdle {
		clear(k.applied)
	}
}

// leave says that the caller no longer needs the queue.
func (k *Keeper) leave(q *queue) {
	k.mu.Lock()
	defer k.mu.Unlock()
	q.users--
}

// toApply says which limits this process has not applied yet with this configuration.
func (k *Keeper) toApply(limits []Limit) []bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	apply := make([]bool, len(limits))
	for i, l := range limits {
		apply[i] = k.applied[l.Name] != l
	}
	return apply
}

func (k *Keeper) didApply(limits []Limit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range limits {
		k.applied[l.Name] = l
	}
}

// subscriber is what most Scripters of go-redis also are.
type subscriber interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

const (
	// listenTimeout is how long the channel may be silent before the connection is tested.
	listenTimeout = 5 * time.Second
	// listenAgain is the pause before a lost subscription is renewed.
	listenAgain = time.Second
)

// listen starts to hear which slots are handed to this process, unless it has started already or
// rdb cannot subscribe. Without a subscription, waiters ask more often.
func (k *Keeper) listen() {
	s, ok := k.rdb.(subscriber)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !ok || k.listens || k.closed {
		return
	}
	k.listens = true
	k.wg.Go(func() {
		for k.ctx.Err() == nil {
			k.hear(s.Subscribe(k.ctx, "jobthrottle:slots:"+k.nonce))
			k.heard.Store(false)
			pause, cancel := context.WithTimeout(k.ctx, listenAgain)
			<-pause.Done()
			cancel()
		}
	})
}

// hear passes on the messages of a subscription until it breaks.
func (k *Keeper) hear(ps *redis.PubSub) {
	stop := context.AfterFunc(k.ctx, func() { _ = ps.Close() })
	defer func() {
		if stop() {
			_ = ps.Close()
		}
	}()
	tested := false
	for {
		msg, err := ps.ReceiveTimeout(k.ctx, listenTimeout)
		switch msg := msg.(type) {
		case *redis.Subscription:
			k.heard.Store(true)
			k.askAll()
		case *redis.Message:
			token, id, _ := strings.Cut(msg.Payload, " ")
			k.mu.Lock()
			q := k.tokens[token]
			k.mu.Unlock()
			if q != nil {
				q.handed(id)
			}
		}
		if err == nil {
			tested = false
			continue
		}
		if tested || ps.Ping(k.ctx) != nil {
			return
		}
		tested = true
	}
}

// askAll makes everybody ask who waits: slots may have been handed to them before this process could hear of it.
func (k *Keeper) askAll() {
	k.mu.Lock()
	queues := slices.Collect(maps.Values(k.queues))
	k.mu.Unlock()
	for _, q := range queues {
		q.askAll()
	}
}

// closeTimeout bounds how long Close tries to give slots and claims back.
const closeTimeout = time.Second

// Close ends every wait and the context of every lease, and waits until all goroutines have
// ended. Leases that were not released run out.
func (k *Keeper) Close() {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		k.wg.Wait()
		return
	}
	k.closed = true
	queues := make([]*queue, 0, len(k.queues))
	for _, q := range k.queues {
		queues = append(queues, q)
	}
	leases := make([]*Lease, 0, len(k.leases))
	for _, l := range k.leases {
		leases = append(leases, l)
	}
	k.mu.Unlock()
	for _, l := range leases {
		l.end(ErrClosed)
	}
	deadline := time.Now().Add(closeTimeout)
	for _, q := range queues {
		q.close()
	}
	for _, q := range queues {
		q.drained(time.Until(deadline))
	}
	k.mu.Lock()
	k.over = true
	k.mu.Unlock()
	k.cancel()
	k.wg.Wait()
}

// begin starts a goroutine, unless the Keeper is closed.
func (k *Keeper) begin(f func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.over {
		k.wg.Go(f)
	}
	return !k.over
}

// transient reports whether the same call may succeed later.
func transient(err error) bool { return !errors.Is(err, ErrRated) && script.Transient(err) }
