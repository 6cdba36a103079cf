package throttle

import (
	"context"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// Usage is how a limiter stands: what operators see. For a [PerClient] limiter the figures are
// those of one Client.
type Usage struct {
	Rate      Rate
	Used      int64         // permits of past grants that still count
	Reserved  int64         // permits of reservations, which are due later
	Available int64         // what TryAcquire could take now
	NextFree  time.Duration // from now until a permit is available; reservations count
	Paused    time.Duration // how long a pause still lasts
	Pinned    bool
	Soon      int64         // what could be taken 200ms from now, unless others take it before
	Later     time.Duration // from now until more than Soon could be; 0: never, now, or not known because the limiter is smooth
	Clients   []string      // ids of clients seen lately: all of a PerClient limiter; of others, those that reserved far ahead
}

// Config reads the limiter's rate. The error is [ErrNotInitialized] if it has none,
// [ErrInvalidRate] if its configuration in Redis makes no sense, and [ErrWrongType] if a key of
// the limiter holds something else.
func (l *Limiter) Config(ctx context.Context) (Rate, error) {
	u, err := l.usage(ctx)
	return u.Rate, err
}

// AvailablePermits is how many permits [Limiter.TryAcquire] could take now. A busy Client of a
// large limit takes a few in advance: they count as taken. Its errors are those of
// [Limiter.Config].
func (l *Limiter) AvailablePermits(ctx context.Context) (int64, error) {
	u, err := l.usage(ctx)
	return u.Available, err
}

// usage reads how the limiter stands for its Client.
func (l *Limiter) usage(ctx context.Context) (Usage, error) {
	reply, err := l.c.core.Call(ctx, script.Inspect, l.keys())
	if err != nil {
		return Usage{}, l.error(err)
	}
	standing, found, err := script.DecodeStanding[Rate](reply)
	if err == nil && !found {
		err = ErrNotInitialized
	}
	if err != nil {
		return Usage{}, l.error(err)
	}
	return Usage(standing), nil
}

// keys are the limiter's keys for its Client.
func (l *Limiter) keys() []string {
	keys := script.KeysOf(l.name, l.c.core.ID)
	return keys[:]
}
