package redisson_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redisson"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// requireEnv, set to 1, turns tests skipped for want of java and mvn into failed ones.
const requireEnv = "JOBTHROTTLE_REQUIRE_JAVA"

// quota is a Redis whose limiters Go and Java share.
type quota struct {
	*testing.T
	addr string
	rdb  *redis.Client
}

func share(t *testing.T) *quota {
	addr := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 32})
	t.Cleanup(func() { rdb.Close() })
	return &quota{T: t, addr: addr, rdb: rdb}
}

// java is a Redisson client in a JVM of its own.
func (q *quota) java() *redisson.Peer {
	q.Helper()
	p, err := redisson.Start(q.Context(), q.addr)
	if errors.Is(err, redisson.ErrNoJava) && os.Getenv(requireEnv) != "1" {
		q.Skipf("nothing to compare with: %v", err)
	}
	check(q, err)
	q.Cleanup(func() { _ = p.Close() }) // the end of the test's context has killed it
	return p
}

// ours is a Client.
func (q *quota) ours() *throttle.Client {
	q.Helper()
	c, err := throttle.New(q.rdb, throttle.Options{})
	check(q, err)
	q.Cleanup(func() {
		if err := c.Close(); err != nil {
			q.Error(err)
		}
	})
	return c
}

// name is a limiter's name that no other subtest has.
func name(t *testing.T) string { return strings.NewReplacer("/", ":", " ", "_").Replace(t.Name()) }

func limiter(t testing.TB, c *throttle.Client, name string) *throttle.Limiter {
	t.Helper()
	l, err := c.Limiter(name)
	check(t, err)
	return l
}

// rate is that of Redisson's kind: without guard.
func rate(permits int64, interval time.Duration) throttle.Rate {
	return throttle.Rate{Permits: permits, Interval: interval, Guard: -1}
}

// shared are the fields of a rate that Redisson knows.
func shared(r throttle.Rate) redisson.Rate {
	return redisson.Rate{PerClient: r.Type == throttle.PerClient, Permits: r.Permits, Interval: r.Interval, KeepAlive: r.KeepAlive}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want fails the test unless a call returned this, and no error.
func want[T comparable](t testing.TB, what string, wanted T) func(got T, err error) {
	t.Helper()
	return func(got T, err error) {
		t.Helper()
		if got != wanted || err != nil {
			t.Fatalf("%s: got %v, %v; want %v", what, got, err, wanted)
		}
	}
}

// age makes time pass for a limiter: its grants are now d older.
func (q *quota) age(log string, d time.Duration) {
	q.Helper()
	entries, err := q.rdb.ZRange(q.Context(), log, 0, -1).Result()
	check(q, err)
	for _, e := range entries {
		check(q, q.rdb.ZIncrBy(q.Context(), log, -float64(d.Milliseconds()), e).Err())
	}
}

// overallLog is the key of a limiter's grants.
func overallLog(name string) string { return "{" + name + "}:permits" }
