package operate

import (
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/internal/driver"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// Fleet is the limiters in a Redis as their operators see them, over all processes that use them.
// It belongs to none of those processes and stands in no queue. Its methods may be called
// concurrently. Reading changes nothing in Redis.
//
// An error that concerns one limiter is a [*throttle.Error], which names it, and wraps one of
// package throttle's errors, that of ctx, or that of Redis.
type Fleet struct {
	// Skip, if not nil, reports whether a key is no limiter although it holds a hash, so that
	// Limiters need not ask Redis for what is in it: the many tasks of a job queue, for example.
	// Set it before the Fleet is used.
	Skip func(key string) bool

	rdb     redis.UniversalClient
	changes *driver.Client
}

// NewFleet returns a [Fleet] of the limiters in rdb. The caller still has to close rdb; there is
// nothing else to close. NewFleet makes no Redis call. It needs a [redis.UniversalClient], and
// not only a [redis.Scripter] like [throttle.New], because of SCAN and pipelines.
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
