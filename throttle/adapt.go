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

// Adapt lets a limiter find the limit of its API by itself, between Min and Max
// permits of its Interval. The zero value ends that.
//
// What the processes of the fleet observe (Observe) is put together in Redis: the
// limit grows while it is used and nothing is refused, and what the API refuses cuts it,
// once for the whole fleet. Rate.Permits, where the limiter starts, and the
// configuration in Redis are then the limit as it is at present.
type Adapt struct{ Min, Max int64 }

// Validate returns an error that wraps ErrInvalidRate if no limiter can adapt so.
func (a Adapt) Validate() error {
	if a == (Adapt{}) || a.Min >= 1 && a.Min <= a.Max && a.Max <= MaxPermits {
		return nil
	}
	return fmt.Errorf("%w: adapt from %d to %d permits: want 1 <= min <= max <= %d", ErrInvalidRate, a.Min, a.Max, int64(MaxPermits))
}

// Outcome is what an API made of a request. The zero value is a request that it took, for
// one permit.
type Outcome = outcome.Outcome

// SetAdapt makes the limiter adaptive, for every process, and has this Client report
// what Observe is told: each process that uses the limiter calls it once. As long as it
// says the same, what was learnt stays; other bounds have it begin again, at the
// present rate. SetRate and UpdateRate forget what was learnt, and go on from their rate; a
// pinned limiter stays as it is. The zero Adapt ends it, and leaves the limit where it is.
//
// A PerClient limiter cannot adapt (ErrInvalidRate). Redisson's clients obey the limit, and
// report nothing. All processes should run a version that has SetAdapt. A Client reports of the
// 16,000 adaptive limiters that it used last, at least: with more, call SetAdapt again before a limiter is used.
func (l *Limiter) SetAdapt(ctx context.Context, a Adapt) error {
	start, _, _ := strings.Cut(l.member.Create, ":")
	n, _ := strconv.ParseInt(start, 10, 64)
	return l.adapt(ctx, n, a)
}

// ApplyAdapt is ApplyRate for a limiter that is to be adaptive, from r on: what a
// configuration file does at start. Where the limiter is that already, from the same rate and
// within the same bounds, it keeps what it has learnt.
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

// Observe tells what the API made of a request that was sent then, with permits of this
// limiter. It returns at once: refusals go to Redis as soon as that is possible,
// the rest together, some times an Interval. It does nothing unless SetAdapt, or ApplyAdapt, has made
// the limiter adaptive through this Client.
func (l *Limiter) Observe(sent time.Time, o Outcome) { l.c.core.Observe(l.name, sent, o) }

// Observe is that of the member that is adaptive. Where several are, nobody
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
