package throttle

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// bench is a Redis and the Clients of one test.
type bench struct {
	*testing.T
	rdb   *redis.Client
	fake  *miniredis.Miniredis // nil: a real Redis
	begin time.Time
}

// underFakeTime runs a test in a bubble whose time passes only while all wait, with a Redis in
// memory that uses the same clock. Long tests that run only under fake time are parallel: they
// begin when the tests that use a real clock are over.
func underFakeTime(t *testing.T, f func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		m, rdb := redistest.InMemory(t)
		f(&bench{T: t, rdb: rdb, fake: m, begin: time.Now()})
	})
}

// onRealRedis runs a test on a redis-server of its own.
func onRealRedis(t *testing.T, f func(b *bench)) {
	f(&bench{T: t, rdb: dial(t, redistest.Start(t)), begin: time.Now()})
}

// forEachRedis runs a test under fake time and on a real Redis.
func forEachRedis(t *testing.T, f func(b *bench)) {
	t.Run("fake time", func(t *testing.T) { underFakeTime(t, f) })
	t.Run("redis", func(t *testing.T) { onRealRedis(t, f) })
}

func (b *bench) client() *Client { return b.clientOf(b.rdb) }

func (b *bench) clientOf(rdb redis.Scripter) *Client {
	b.Helper()
	c, err := New(rdb, Options{})
	check(b, err)
	b.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	return c
}

// name is a limiter's name that no other test has.
func (b *bench) name() string { return strings.NewReplacer("/", ":", " ", "_").Replace(b.Name()) }

// limiter is c's view of the test's limiter.
func (b *bench) limiter(c *Client) *Limiter {
	b.Helper()
	l, err := c.Limiter(b.name())
	check(b, err)
	return l
}

// limited is a limiter of a new Client, with a rate.
func (b *bench) limited(r Rate) *Limiter {
	b.Helper()
	l := b.limiter(b.client())
	check(b, l.SetRate(b.Context(), r))
	return l
}

// until lets time pass until d after the beginning.
func (b *bench) until(d time.Duration) { time.Sleep(time.Until(b.begin.Add(d))) }

// keys are the keys that Redis has of limiters whose names begin with the test's name, except the
// replies kept for repeated scripts.
func (b *bench) keys() []string {
	b.Helper()
	all, err := b.rdb.Keys(b.Context(), "*"+b.name()+"*").Result()
	check(b, err)
	var keys []string
	for _, k := range all {
		if !strings.Contains(k, ":reply:") {
			keys = append(keys, k)
		}
	}
	return keys
}

func (b *bench) available(l *Limiter) int64 {
	b.Helper()
	n, err := l.AvailablePermits(b.Context())
	check(b, err)
	return n
}

func (b *bench) expectAvailable(l *Limiter, want int64) {
	b.Helper()
	if n := b.available(l); n != want {
		b.Fatalf("%d permits available, want %d", n, want)
	}
}

func (b *bench) try(l *Limiter, n int64) bool {
	b.Helper()
	ok, err := l.TryAcquire(b.Context(), n)
	check(b, err)
	return ok
}

func (b *bench) expectTry(l *Limiter, n int64, want bool) {
	b.Helper()
	if got := b.try(l, n); got != want {
		b.Fatalf("TryAcquire(%d) = %v, want %v", n, got, want)
	}
}

// expectError checks the kind of an error, and that it names the limiter.
func (b *bench) expectError(err, want error, limiter string) {
	b.Helper()
	var e *Error
	if !errors.Is(err, want) || !errors.As(err, &e) || e.Limiter != limiter || !strings.Contains(err.Error(), limiter) {
		b.Fatalf("error %v, want %v that names %q", err, want, limiter)
	}
}

// rate is "10/1s" without guard, which is how Redisson's limiters behave.
func rate(s string) Rate {
	r, err := ParseRate(s)
	if err != nil {
		panic(err)
	}
	r.Guard = -1
	return r
}

func perClient(s string) Rate {
	r := rate(s)
	r.Type = PerClient
	return r
}
