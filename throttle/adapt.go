package throttle

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/outcome"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// Adapt lets a limiter find the limit of its API, between Min and Max permits of its Interval.
// The zero value ends that.
//
// The observations of all processes of the fleet ([Limiter.Observe]) are put together in Redis.
// The limit grows while it is used and nothing is refused. A refusal by the API cuts it, once for
// the whole fleet. The limiter starts at [Rate.Permits]. From then on the rate in Redis, which
// [Limiter.Config] reads, is the limit in force.
type Adapt struct{ Min, Max int64 }

// Validate returns an error that wraps [ErrInvalidRate] if no limiter can adapt within these
// bounds.
func (a Adapt) Validate() error {
	if a == (Adapt{}) || a.Min >= 1 && a.Min <= a.Max && a.Max <= MaxPermits {
		return nil
	}
	return fmt.Errorf("%w: adapt from %d to %d permits: want 1 <= min <= max <= %d", ErrInvalidRate, a.Min, a.Max, int64(MaxPermits))
}

// Outcome is what an API made of a request. The zero value is a request that the API accepted,
// for one permit.
type Outcome = outcome.Outcome

// SetAdapt makes the limiter adaptive, for every process, and makes this Client report what
// [Limiter.Observe] is told. Each process that uses the limiter calls it once. As long as all
// calls say the same, the limiter keeps what it has learnt. With other bounds it forgets that,
// and begins again at its present rate. With another rate in [Client.LimiterWithRate] it begins
// again at that rate. After [Limiter.SetRate] or [Limiter.UpdateRate] it begins again at the rate
// that they set. A pinned limiter stays as it is. The zero Adapt ends adapting, and leaves the
// limit where it is.
//
// A [PerClient] limiter cannot adapt ([ErrInvalidRate]). If the limiter has no rate, and is not
// from LimiterWithRate, the error is [ErrNotInitialized]. Redisson's clients obey the limit, and
// report nothing. All processes should run a version that has SetAdapt. A Client reports on at
// least the 16,000 adaptive limiters that it used last: if it has more, call SetAdapt again
// before a limiter is used.
func (l *Limiter) SetAdapt(ctx context.Context, a Adapt) error {
	start, _, _ := strings.Cut(l.member.Create, ":")
	n, _ := strconv.ParseInt(start, 10, 64)
	return l.adapt(ctx, n, a)
}

// ApplyAdapt is [Limiter.ApplyRate] for a limiter that is to be adaptive and starts at r: it is
// what a configuration file does at start. If the limiter is already adaptive, from the same rate
// and within the same bounds, it keeps what it has learnt. With the zero Adapt it is ApplyRate.
func (l *Limiter) ApplyAdapt(ctx context.Context, r Rate, a Adapt) (bool, error) {
	if err := a.Validate(); err != nil {
		return false, l.error(err)
	}
	if a == (Adapt{}) {
		return l.ApplyRate(ctx, r)
	}
	if r.Type == PerClient {
		return false, l.error(errPerClient)
	}
	applied, err := l.setRate(ctx, "apply", r, 1)
	if err != nil {
		return false, err
	}
	return applied, l.adapt(ctx, r.Permits, a)
}

var errPerClient = fmt.Errorf("%w: a PerClient limiter cannot adapt", ErrInvalidRate)

func (l *Limiter) adapt(ctx context.Context, start int64, a Adapt) error {
	if err := a.Validate(); err != nil {
		return l.error(err)
	}
	if a == (Adapt{}) {
		start = 0
	}
	reply, err := l.line.Change(ctx, script.Adaptive, start, a.Min, a.Max, l.member.Create)
	if err != nil {
		return l.error(err)
	}
	switch n, err := script.Int(reply); {
	case err != nil:
		return l.error(err)
	case n == -1:
		return l.error(ErrNotInitialized)
	case n == -2:
		return l.error(errPerClient)
	}
	l.c.core.Adapt(l.name, script.Bracket{Start: max(start, 1), Min: a.Min, Max: a.Max})
	l.c.core.Changed(l.name)
	return nil
}

// Observe reports what the API made of a request that was sent at that time with permits of this
// limiter. It returns at once. Refusals go to Redis as soon as possible, everything else
// together, several times an Interval. It does nothing unless [Limiter.SetAdapt] or
// [Limiter.ApplyAdapt] has made the limiter adaptive through this Client.
func (l *Limiter) Observe(sent time.Time, o Outcome) { l.c.core.Observe(l.name, sent, o) }

// Observe is [Limiter.Observe] of the adaptive member. If several members are adaptive, nobody
// knows whose limit it was, and nothing is observed: use Limiter.Observe.
func (g *Group) Observe(sent time.Time, o Outcome) {
	var one *Limiter
	for _, l := range g.members {
		if l.c.core.Adapts(l.name) {
			if one != nil {
				return
			}
			one = l
		}
	}
	if one != nil {
		one.Observe(sent, o)
	}
}
