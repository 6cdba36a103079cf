package operate

import (
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/internal/driver"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// Fleet is the limiters in a Redis as their operators see them, over all
// processes that use them. It belongs to none of those processes and holds no
// place in any queue. Its methods may be called concurrently. Reading changes
// nothing in Redis.
//
// An error that concerns one limiter is a *throttle.Error, which names it, and
// wraps one of package throttle's errors, that of ctx, or that of Redis.
type Fleet struct {
	// Skip, if not nil, tells keys that are no limiters although they hold
	// hashes, so that Limiters need not ask Redis for what is in them: the many
	// tasks of a job queue, say. Set it before the Fleet is used.
	Skip func(key string) bool

	rdb     redis.UniversalClient
	changes *driver.Client
}

// NewFleet returns a Fleet of the limiters in rdb, which remains the caller's
// to close. It makes no Redis call, and there is nothing else to close. A
// throttle.Client needs less of its connection: SCAN and pipelines are what only
// a redis.UniversalClient has.
func NewFleet(rdb redis.UniversalClient) *Fleet {
	return &Fleet{rdb: rdb, changes: driver.New(driver.Config{Redis: rdb})}
}

// checkName returns an ErrInvalidName for a name that no limiter can have.
func checkName(name string) error {
	if why := script.CheckName(name); why != "" {
		return &throttle.Error{Limiter: script.Clip(name), Err: throttle.ErrInvalidName, Detail: why}
	}
	return nil
}

// failed names the limiter that an error concerns.
func failed(name string, err error) error { return &throttle.Error{Limiter: name, Err: err} }
