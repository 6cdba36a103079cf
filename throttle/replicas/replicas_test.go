package replicas_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/replicas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func dial(tb testing.TB, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	tb.Cleanup(func() { rdb.Close() })
	return rdb
}

// replicated is a master and its one replica, in step.
func replicated(t testing.TB) (master *redis.Client, replica *redistest.Server) {
	t.Helper()
	server := redistest.New(t, "--repl-diskless-sync-delay", "0")
	host, port := server.HostPort()
	replica = redistest.New(t, "--replicaof", host, port)
	master = dial(t, server.Addr)
	if n, err := master.Wait(t.Context(), 1, 2*time.Second).Result(); err != nil || n != 1 {
		t.Fatalf("%d replicas in step: %v", n, err)
	}
	return master, replica
}

func TestWaitReplicas(t *testing.T) {
	master, replica := replicated(t)
	ctx := t.Context()
	c, err := throttle.New(replicas.WaitReplicas(master, 1, time.Second), throttle.Options{})
	check(t, err)
	defer func() { check(t, c.Close()) }()
	l, err := c.Limiter("api")
	check(t, err)
	// The guard is long: a busy machine may take long to acknowledge.
	check(t, l.SetRate(ctx, throttle.Rate{Permits: 5, Interval: 10 * time.Second, Guard: time.Second}))
	if ok, err := l.TryAcquire(ctx, 2); !ok || err != nil {
		t.Fatal(ok, err)
	}

	replica.Freeze()
	_, err = l.TryAcquire(ctx, 1)
	var few *replicas.ReplicasError
	if !errors.As(err, &few) || few.Want != 1 || few.Got != 0 {
		t.Fatalf("with a replica that hangs: %v", err)
	}
	var named *throttle.Error
	if !errors.As(err, &named) || named.Limiter != "api" {
		t.Errorf("error %v, want one that names the limiter", err)
	}
	acquired := make(chan error, 1)
	go func() { acquired <- l.Acquire(ctx, 1) }()
	for failed := c.Stats().Errors; c.Stats().Errors < failed+2; { // it asks again and again
		<-time.After(10 * time.Millisecond)
	}
	replica.Thaw()
	check(t, <-acquired)

	// The permit of TryAcquire is given back, that of Acquire charged once.
	for available := int64(-1); available != 2; {
		<-time.After(10 * time.Millisecond)
		available, err = l.AvailablePermits(ctx)
		check(t, err)
	}
}

// The second run of a batch writes nothing, and may use another connection: the wait for it must
// be the same as for the first.
func TestWaitReplicasWaitsForRepeats(t *testing.T) {
	master, replica := replicated(t)
	const script = `if redis.call('EXISTS', KEYS[1]) == 1 then return 'again' end return redis.call('SET', KEYS[1], 'x')`
	keys := []string{"k"}
	replica.Freeze()
	defer replica.Thaw()
	for _, want := range []string{"the first run", "a repeat by another connection"} {
		rdb := dial(t, master.Options().Addr)
		err := replicas.WaitReplicas(rdb, 1, 50*time.Millisecond).Eval(t.Context(), script, keys).Err()
		var few *replicas.ReplicasError
		if !errors.As(err, &few) {
			t.Errorf("%s: %v, want a ReplicasError", want, err)
		}
	}
	if got := master.Get(t.Context(), "k").Val(); got != "x" {
		t.Errorf("the script did not run: %q", got)
	}
}

func TestWaitReplicasOfTooManyReplicas(t *testing.T) {
	master, _ := replicated(t)
	c, err := throttle.New(replicas.WaitReplicas(master, 2, 500*time.Millisecond), throttle.Options{})
	check(t, err)
	defer c.Close() // says that it could give nothing back
	l, err := c.Limiter("api")
	check(t, err)
	err = l.SetRate(t.Context(), throttle.Rate{Permits: 5, Interval: time.Second, Guard: -1})
	var few *replicas.ReplicasError
	if !errors.As(err, &few) || few.Want != 2 || few.Got != 1 {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	acquired := make(chan error, 1)
	go func() { acquired <- l.Acquire(ctx, 1) }()
	for failed := c.Stats().Errors; c.Stats().Errors < failed+2; { // it asks again and again
		<-time.After(10 * time.Millisecond)
	}
	cancel()
	if err := <-acquired; !errors.As(err, &few) {
		t.Errorf("Acquire: %v, want the reason why nothing was granted", err)
	}
}

// BenchmarkWaitReplicas is one caller after the other, each with a call of its own: how long a
// grant takes with and without a replica.
func BenchmarkWaitReplicas(b *testing.B) {
	master, _ := replicated(b)
	for name, rdb := range map[string]redis.Scripter{"0": master, "1": replicas.WaitReplicas(master, 1, time.Second)} {
		b.Run(name, func(b *testing.B) {
			c, err := throttle.New(rdb, throttle.Options{})
			check(b, err)
			defer c.Close()
			l, err := c.Limiter("b")
			check(b, err)
			check(b, l.SetRate(b.Context(), throttle.Rate{Permits: 1 << 30, Interval: time.Minute}))
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				check(b, l.Release(b.Context(), 1)) // never from a stock
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
		})
	}
}

// metered is a client that somebody has wrapped.
type metered struct{ *redis.ClusterClient }

// TestWaitReplicasOnACluster: the master that has the key has lost its replica, and the others have theirs. Nothing is
// granted, whoever wraps the client.
func TestWaitReplicasOnACluster(t *testing.T) {
	cluster := redistest.NewCluster(t)
	var addrs []string
	for _, node := range cluster.Nodes {
		addrs = append(addrs, node.Addr)
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true})
	t.Cleanup(func() { rdb.Close() })
	for _, wrapped := range []redis.UniversalClient{rdb, metered{rdb}} {
		check(t, replicas.WaitReplicas(wrapped, 1, 5*time.Second).Eval(t.Context(), "return redis.call('SET', KEYS[1], 'x')", []string{"api"}).Err())
	}
	master, err := rdb.MasterForKey(t.Context(), "api")
	check(t, err)
	masters := len(cluster.Nodes) / 2
	cluster.Nodes[masters+slices.Index(addrs, master.Options().Addr)].Stop()
	for _, wrapped := range []redis.UniversalClient{rdb, metered{rdb}} {
		for range 6 {
			var few *replicas.ReplicasError
			if err := replicas.WaitReplicas(wrapped, 1, 50*time.Millisecond).Eval(t.Context(), "return redis.call('SET', KEYS[1], 'x')", []string{"api"}).Err(); !errors.As(err, &few) {
				t.Errorf("%T: %v, want that no replica has it", wrapped, err)
			}
		}
	}
}

// TestWaitReplicasForLessThanAMillisecond: Redis takes a timeout of 0 for none.
func TestWaitReplicasForLessThanAMillisecond(t *testing.T) {
	began := time.Now()
	var few *replicas.ReplicasError
	err := replicas.WaitReplicas(dial(t, redistest.Start(t)), 1, 100*time.Microsecond).Eval(t.Context(), "return redis.call('SET', KEYS[1], 'x')", []string{"api"}).Err()
	if took := time.Since(began); !errors.As(err, &few) || took > time.Second {
		t.Errorf("%v after %v", err, took)
	}
}

// TestWaitReplicasOfARing: a Ring does not say which server has a key.
func TestWaitReplicasOfARing(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": redistest.Start(t)}})
	t.Cleanup(func() { ring.Close() })
	if err := replicas.WaitReplicas(ring, 1, time.Second).Eval(t.Context(), "return 1", []string{"api"}).Err(); err == nil || !strings.Contains(err.Error(), "Ring") {
		t.Error(err)
	}
}
