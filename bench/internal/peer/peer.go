// Package peer has the limiters that are measured side by side. Each answers the same question:
// what does a fleet see that works under it?
package peer

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
)

// The names of the peers in tables.
const (
	NameJobthrottle = "jobthrottle"
	NameNoPrefetch  = "jobthrottle, no prefetch"
	NameRedisRate   = "redis_rate"
	NameRedisson    = "Redisson"
	NameScript      = "empty EVALSHA"
)

// Peer is a limiter that fleets can work under.
type Peer interface {
	Name() string
	// Join connects a fleet to Redis, which may have no keys yet. The caller has to Close it.
	Join(ctx context.Context, w fleet.Work) (Fleet, error)
}

// Fleet is connected clients of a peer. Work returns the uses in the order of their times. If
// it returns an error, the uses are worthless.
type Fleet interface {
	Work(ctx context.Context) ([]fleet.Use, error)
	Close() error
}

// connect returns a client that has already made as many connections as it will use at a time.
// It may make as many as the work has goroutines.
func connect(ctx context.Context, addr string, w fleet.Work, connections int) (*redis.Client, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: max(w.Goroutines, 10), ContextTimeoutEnabled: true})
	var conns []*redis.Conn
	var err error
	for len(conns) < connections && err == nil {
		conn := rdb.Conn()
		conns = append(conns, conn)
		err = conn.Ping(ctx).Err()
	}
	for _, conn := range conns {
		err = errors.Join(err, conn.Close()) // which returns it to the pool
	}
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return rdb, nil
}
