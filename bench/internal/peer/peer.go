// Package peer has the limiters that are measured side by side, each behind
// the same question: what did a fleet see that worked under you?
package peer

import (
	"context"
	"time"

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

// Peer is a limiter that fleets can work under. Work returns the uses in the
// order of their times; an error means that they are of no worth.
type Peer interface {
	Name() string
	Work(ctx context.Context, w fleet.Work) ([]fleet.Use, error)
}

// connect returns the connections of one client of a fleet, as many as it has
// goroutines: nobody waits for one.
func connect(addr string, w fleet.Work) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: max(w.Goroutines, 10)})
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
