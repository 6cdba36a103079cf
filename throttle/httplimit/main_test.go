package httplimit_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limited is a limiter in a Redis of the test's own.
func limited(t *testing.T, rate throttle.Rate) (*redis.Client, *throttle.Client, *throttle.Limiter) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	t.Cleanup(func() { rdb.Close() })
	client, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	limiter, err := client.LimiterWithRate("api", rate)
	if err != nil {
		t.Fatal(err)
	}
	return rdb, client, limiter
}
