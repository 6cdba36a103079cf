package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/producer"
)

// The types that handlers use are those of package asynqlimit, which has them for any asynq
// server.
type (
	// ThrottledError says that a job was put off, which is no failure.
	ThrottledError = asynqlimit.ThrottledError
	// BlockedError says that a job cannot run until something is fixed. It waits until then.
	BlockedError = asynqlimit.BlockedError
	// BlockReason is why a job cannot run.
	BlockReason = asynqlimit.BlockReason
	// RetryAfterError is what RetryAfter returns.
	RetryAfterError = asynqlimit.RetryAfterError

	// Stats counts what the jobs of this worker did since it was made.
	Stats = asynqlimit.Stats
	// LimitStats counts for one limit of the configuration.
	LimitStats = asynqlimit.LimitStats
	// JobStats counts the attempts of one pattern's jobs.
	JobStats = asynqlimit.JobStats
	// Waits is a histogram of durations.
	Waits = asynqlimit.Waits
)

// The reasons of a [BlockedError].
const (
	NoHandler      = asynqlimit.NoHandler
	BadKey         = asynqlimit.BadKey
	BadShare       = asynqlimit.BadShare
	BadCost        = asynqlimit.BadCost
	CostAboveLimit = asynqlimit.CostAboveLimit
	HostNotAllowed = asynqlimit.HostNotAllowed
	UnknownField   = asynqlimit.UnknownField
	BadRequest     = asynqlimit.BadRequest
)

// OtherJobs is the name in Stats of jobs that the configuration does not have.
const OtherJobs = asynqlimit.OtherJobs

// WaitBounds are the bounds of the buckets of Waits.
var WaitBounds = asynqlimit.WaitBounds

// RetryAfter is [asynqlimit.RetryAfter]: it returns an error for handlers of jobs whose API said
// to try again after d.
func RetryAfter(d time.Duration) error { return asynqlimit.RetryAfter(d) }

// Settle is [asynqlimit.Settle]: it corrects what the job of ctx took from its limits, once its
// handler knows the true cost.
func Settle(ctx context.Context, cost int64) error { return asynqlimit.Settle(ctx, cost) }

// Stats returns the counters as they are now.
func (w *Worker) Stats() Stats { return w.pools[0].limits.Stats() }

func blockedHost(err error) error {
	return &BlockedError{Reason: HostNotAllowed, Err: err, Fix: "correct http.allow_hosts, or the job"}
}

// permanent marks an error that no retry can fix: asynq archives the task.
func permanent(err error) error { return fmt.Errorf("%w: %w", err, asynq.SkipRetry) }

// retryUndecided is how long to wait before asking again if Redis gave no answer.
const retryUndecided = time.Second

// retryDelay tells asynq when a failed task comes back. It uses usual, which may be nil.
func retryDelay(usual asynq.RetryDelayFunc) asynq.RetryDelayFunc {
	if usual == nil {
		usual = asynq.DefaultRetryDelayFunc
	}
	return func(retried int, err error, task *asynq.Task) time.Duration {
		if errors.Is(err, asynq.ErrLeaseExpired) {
			return 0 // its worker died at least a minute ago: long enough
		}
		if most, ok := producer.MaxRetry(task.Headers()); ok && retried >= most {
			return 0 // the last attempt panicked or timed out: it comes back to be archived
		}
		return usual(retried, err, task)
	}
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
