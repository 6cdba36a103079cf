package throttle_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/replicas"
)

// callers are clients whose goroutines acquire permits of one limiter, one at
// a time, while Redis changes under them.
type callers struct {
	tb      testing.TB
	begin   time.Time
	end     context.CancelFunc
	clients []*throttle.Client
	wg      sync.WaitGroup

	mu   sync.Mutex
	uses []use
	more chan struct{} // told of each use
}

// startCallers runs two clients of 32 goroutines each until length is over, or until nothing is
// available before that. A goroutine acquires at most once every pace.
func startCallers(t *testing.T, name string, r throttle.Rate, pace, length time.Duration, connect func() (redis.Scripter, throttle.Options)) *callers {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), length)
	s := &callers{tb: t, begin: time.Now(), end: cancel, more: make(chan struct{}, 1)}
	t.Cleanup(cancel)
	for i := range 2 {
		c, err := throttle.New(connect())
		if err != nil {
			t.Fatal(err)
		}
		l, err := c.LimiterWithRate(name, r)
		if err != nil {
			t.Fatal(err)
		}
		s.clients = append(s.clients, c)
		for g := range 32 {
			s.wg.Go(func() {
				tick := time.NewTicker(pace)
				defer tick.Stop()
				for ; ; <-tick.C {
					err := l.Acquire(ctx, 1)
					if err == nil {
						s.note(use{at: time.Since(s.begin), n: 1, client: i, goroutine: g})
						continue
					}
					if ctx.Err() == nil && !errors.Is(err, throttle.ErrExceedsDeadline) {
						t.Errorf("Acquire gave up: %v", err)
					}
					return
				}
			})
		}
	}
	return s
}

func (s *callers) note(u use) {
	s.mu.Lock()
	s.uses = append(s.uses, u)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

func (s *callers) used() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.uses)
}

// await returns when n more permits have been used.
func (s *callers) await(n int) {
	s.tb.Helper()
	deadline := time.After(time.Minute)
	for want := s.used() + n; s.used() < want; {
		select {
		case <-s.more:
		case <-deadline:
			s.tb.Fatalf("%d permits more were to be had, and only %d came within a minute", n, n-(want-s.used()))
		}
	}
}

// finish waits for the callers, and returns what they used.
func (s *callers) finish() outcome {
	s.tb.Helper()
	s.wg.Wait()
	out := outcome{uses: s.uses, length: time.Since(s.begin)}
	for _, c := range s.clients {
		st := c.Stats()
		out.calls, out.stale, out.late = out.calls+st.Calls, out.stale+st.Stale, out.late+st.Late
		if err := c.Close(); err != nil {
			s.tb.Error(err)
		}
	}
	slices.SortFunc(out.uses, func(a, b use) int { return int(a.at - b.at) })
	return out
}

// gap is the longest time without a use.
func (o outcome) gap() (longest time.Duration) {
	for i := range o.uses[1:] {
		longest = max(longest, o.uses[i+1].at-o.uses[i].at)
	}
	return longest
}

// logChange says how the callers came through.
func (o outcome) logChange(t *testing.T, what string, r throttle.Rate) {
	t.Helper()
	t.Logf("%s: %d permits, busiest window %d of %d, longest gap %v, %d stale, %d late",
		what, o.permits(), o.busiest(r.Interval), r.Permits, o.gap().Round(time.Millisecond), o.stale, o.late)
}

// patient is a rate whose guard allows for a busy machine.
func patient(permits int64, interval time.Duration) throttle.Rate {
	return throttle.Rate{Permits: permits, Interval: interval, Guard: min(interval/5, 200*time.Millisecond)}
}

func clusterClient(t *testing.T, c *redistest.Cluster) *redis.ClusterClient {
	t.Helper()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

func failoverClient(t *testing.T, s *redistest.Sentinels) *redis.Client {
	t.Helper()
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: redistest.SentinelMaster, SentinelAddrs: s.Addrs()})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// TestClusterChangesUnderLoad: the slot of a busy limiter moves to another master, in two steps,
// and a replica takes over by order, which loses nothing. The limit holds throughout, and callers
// notice no more than a wait.
func TestClusterChangesUnderLoad(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t)
	for _, waiting := range []bool{false, true} {
		name := "without wait"
		if waiting {
			name = "with wait"
		}
		t.Run(name, func(t *testing.T) {
			limiter := strings.ReplaceAll(t.Name(), "/", ":")
			rounds := 1
			if nightly() {
				rounds = 10
			}
			r := patient(200, 500*time.Millisecond)
			s := startCallers(t, limiter, r, time.Microsecond, 10*time.Minute, func() (redis.Scripter, throttle.Options) {
				rdb := clusterClient(t, c)
				if waiting {
					return replicas.WaitReplicas(rdb, 1, time.Second), throttle.Options{Cluster: true}
				}
				return rdb, throttle.Options{}
			})
			for range rounds {
				s.await(300)
				c.Reshard(limiter, 500*time.Millisecond)
				s.await(300)
				c.Failover(limiter)
			}
			s.await(300)
			s.end()
			o := s.finish()
			o.logChange(t, "moved slots and failovers", r)
			checkBusiest(t, o, r)
		})
	}
}

// TestOneSlot: all keys of a limiter lie in the slot of its hash tag, also those of a group and
// of its clients, and a group over several slots is refused when it is made.
func TestOneSlot(t *testing.T) {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.StartCluster(t)})
	defer rdb.Close()
	client, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var members []*throttle.Limiter
	for name, r := range map[string]throttle.Rate{
		"{api}:fleet":      {Permits: 5, Interval: time.Minute},
		"{api}:worker":     {Permits: 5, Interval: time.Minute, Type: throttle.PerClient},
		"{api}:account:42": {Permits: 5, Interval: time.Minute, KeepAlive: time.Hour},
	} {
		l, err := client.LimiterWithRate(name, r)
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, l)
	}
	other, err := client.LimiterWithRate("other", throttle.Rate{Permits: 5, Interval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Group(members[0], other)
	if !errors.Is(err, throttle.ErrInvalidGroup) || !strings.Contains(err.Error(), "other") || !strings.Contains(err.Error(), "slot") {
		t.Errorf("a group over two slots: %v", err)
	}
	group, err := client.Group(members...)
	if err != nil {
		t.Fatal(err)
	}
	for _, acquire := range []func(context.Context, int64) error{group.Acquire, other.Acquire} {
		if err := acquire(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
	}
	slots := map[int64][]string{}
	var mu sync.Mutex
	err = rdb.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		keys, err := node.Keys(ctx, "*").Result()
		mu.Lock()
		defer mu.Unlock()
		for _, key := range keys {
			slot := node.ClusterKeySlot(ctx, key).Val()
			slots[slot] = append(slots[slot], key)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(slots) != 2 {
		t.Errorf("keys of two hash tags lie in %d slots: %v", len(slots), slots)
	}
	if keys := slots[rdb.ClusterKeySlot(t.Context(), "other").Val()]; len(keys) < 4 {
		t.Errorf("%q: want at least the configuration, the value, the log and the last reply", keys)
	}
}
