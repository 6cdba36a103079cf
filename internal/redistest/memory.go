package redistest

import (
	"context"
	"net"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// InMemory is a Redis in memory for a test in a bubble of testing/synctest, and a client of it: its clock is that of the
// bubble, and nothing goes through the network.
func InMemory(tb testing.TB) (*miniredis.Miniredis, *redis.Client) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	tb.Cleanup(m.Close)
	rdb := redis.NewClient(&redis.Options{
		Addr:                     "127.0.0.1:0", // never dialled, nor looked up
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
		PoolSize:                 1000, // nobody waits for a connection: go-redis keeps those timers, and a timer of another test's time is fatal
	})
	tb.Cleanup(func() { rdb.Close() })
	return m, rdb
}
