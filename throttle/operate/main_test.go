package operate_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a Redis whose limiters a test uses and operates.
type site struct {
	*testing.T
	rdb *redis.Client
}

func at(t *testing.T, addr string) *site {
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { rdb.Close() })
	return &site{t, rdb}
}

// onRedis is a redis-server of the test's own.
func onRedis(t *testing.T) *site { return at(t, redistest.Start(t)) }

// forEachRedis runs a test under fake time, with a Redis in memory, and on a real Redis.
func forEachRedis(t *testing.T, f func(s *site)) {
	t.Run("in memory", func(t *testing.T) { underFakeTime(t, f) })
	t.Run("redis", func(t *testing.T) { f(onRedis(t)) })
}

func underFakeTime(t *testing.T, f func(s *site)) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.InMemory(t)
		f(&site{t, rdb})
	})
}

func (s *site) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) fleet() *operate.Fleet { return operate.NewFleet(s.rdb) }

func (s *site) client() *throttle.Client { return clientOf(s.T, s.rdb) }

func clientOf(t *testing.T, rdb redis.UniversalClient) *throttle.Client {
	t.Helper()
	c, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// limiter is c's view of a limiter.
func (s *site) limiter(c *throttle.Client, name string) *throttle.Limiter {
	s.Helper()
	l, err := c.Limiter(name)
	s.check(err)
	return l
}

// limited is a limiter of c that is given a rate, and of which so much is used.
func (s *site) limited(c *throttle.Client, name string, r throttle.Rate, used int64) *throttle.Limiter {
	s.Helper()
	l := s.limiter(c, name)
	s.check(l.SetRate(s.Context(), r))
	s.use(l, used)
	return l
}

func (s *site) use(l *throttle.Limiter, n int64) {
	s.Helper()
	if n == 0 {
		return
	}
	if ok, err := l.TryAcquire(s.Context(), n); !ok || err != nil {
		s.Fatalf("TryAcquire(%d) of %q: %v, %v", n, l.Name(), ok, err)
	}
}

// expectError checks the kind of an error, and that it names the limiter.
func (s *site) expectError(what string, err, want error, limiter string) {
	s.Helper()
	var e *throttle.Error
	if !errors.Is(err, want) || !errors.As(err, &e) || e.Limiter != limiter || !strings.Contains(err.Error(), limiter) {
		s.Errorf("%s: error %v, want %v that names %q", what, err, want, limiter)
	}
}

func perHour(permits int64) throttle.Rate {
	return throttle.Rate{Permits: permits, Interval: time.Hour}
}

func perClient(permits int64) throttle.Rate {
	r := perHour(permits)
	r.Type = throttle.PerClient
	return r
}
