package throttle

import (
	"context"
	"time"
)

// Usage is how a limiter stands: what operators look at. For a PerClient
// limiter the figures are this Client's.
type Usage struct {
	Rate      Rate
	Used      int64         // permits of past grants that still count
	Reserved  int64         // permits of places ahead
	Available int64         // what TryAcquire could take now
	NextFree  time.Duration // from now until a permit could be had; the queue ahead counted
	Paused    time.Duration // how long a pause still lasts
	Pinned    bool
	Clients   []string // ids of clients seen lately: of PerClient limiters, and of queues beyond the horizon
}

// Inspect reads how the limiter stands. It changes nothing in Redis.
func (l *Limiter) Inspect(ctx context.Context) (Usage, error) {
	reply, err := l.c.eval(ctx, inspectScript, l.keys[:])
	if err != nil {
		return Usage{}, l.error(err)
	}
	if n, ok := reply.(int64); ok && n == -1 {
		return Usage{}, l.error(ErrNotInitialized)
	}
	u, err := decodeUsage(reply)
	if err != nil {
		return Usage{}, l.error(err)
	}
	return u, nil
}

// Config reads the limiter's rate.
func (l *Limiter) Config(ctx context.Context) (Rate, error) {
	u, err := l.Inspect(ctx)
	return u.Rate, err
}

// AvailablePermits is how many permits TryAcquire could take now. The few that
// a busy Client of a large limit took in advance count as taken.
func (l *Limiter) AvailablePermits(ctx context.Context) (int64, error) {
	u, err := l.Inspect(ctx)
	return u.Available, err
}

// decodeUsage reads the reply of inspect.lua.
func decodeUsage(reply any) (Usage, error) {
	parts, ok := reply.([]any)
	if !ok || len(parts) == 0 {
		return Usage{}, badReply("%T where a list was expected", reply)
	}
	words := make([]string, len(parts))
	for i, p := range parts {
		if words[i], ok = p.(string); !ok {
			return Usage{}, badReply("%T where a string was expected", p)
		}
	}
	d := decoder{rest: words[0]}
	ms := func() time.Duration { return time.Duration(d.next()) * time.Millisecond }
	u := Usage{Clients: words[1:]}
	u.Rate = Rate{Permits: d.next(), Interval: ms(), Type: RateType(d.index(2)), KeepAlive: ms(), Guard: d.duration()}
	if u.Rate.Guard == 0 {
		u.Rate.Guard = -1 // none, where zero would read as the default
	}
	u.Rate.Smooth, u.Rate.Window, u.Rate.Offset = d.index(2) == 1, Window(d.index(2)), d.duration()
	u.Used, u.Reserved, u.Available = d.next(), d.next(), d.next()
	u.NextFree, u.Paused, u.Pinned = d.duration(), d.duration(), d.index(2) == 1
	return u, d.err
}
