package asynqlimit

import (
	"context"
	"errors"
	"fmt"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// Observe tells what the API made of the request that the job of ctx sent with its
// latest permits, for the limit of the job that adapts. It returns at once, and does nothing for
// jobs without such a limit.
//
// A handler need not call it: one that returns nil was accepted, and one that returns RetryAfter
// refused; any other error says nothing about a limit. Whoever knows more says it
// before the handler returns: what the API says its limit is, or that it took a request
// of which the job fails all the same.
func Observe(ctx context.Context, o throttle.Outcome) error {
	j := jobFrom(ctx)
	if j == nil {
		return fmt.Errorf("observe: %w", errNoJob)
	}
	j.tell(o)
	return nil
}

// Adapts reports whether a limit of the job of ctx adapts: then the limit itself sees to it
// that its API is asked less often, and a refused job need not wait long.
func Adapts(ctx context.Context) bool {
	j := jobFrom(ctx)
	return j != nil && j.adaptive() >= 0
}

// Preset is whose headers the API of the job of ctx sends, as a limit of the job is
// configured; empty if none is.
func Preset(ctx context.Context) string {
	if j := jobFrom(ctx); j != nil {
		for _, d := range j.needs.draws {
			if d.Limit.Preset != "" {
				return d.Limit.Preset
			}
		}
	}
	return ""
}

// NoEvidence says that what becomes of the job of ctx tells nothing about its limits: the
// API's server failed, say, and asked for time. Nothing is observed of its result then.
func NoEvidence(ctx context.Context) {
	if j := jobFrom(ctx); j != nil {
		j.observed = true
	}
}

// adaptive is which limiter of the job adapts; -1 if none does.
func (j *job) adaptive() int {
	for i, d := range j.needs.draws {
		if d.Limit.Adapt != (throttle.Adapt{}) && i < len(j.limiter) {
			return i
		}
	}
	return -1
}

// observe tells what the handler's result says, unless the handler has.
func (j *job) observe(err error) {
	_, refused := errors.AsType[*RetryAfterError](err)
	if err == nil || refused {
		j.tell(throttle.Outcome{Refused: refused})
	}
}

func (j *job) tell(o throttle.Outcome) {
	i := j.adaptive()
	if i < 0 || !j.held || j.observed {
		return
	}
	j.observed = true
	if o.Permits == 0 {
		o.Permits = j.needs.costs[i]
	}
	if o.MaxPause == 0 {
		o.MaxPause = j.needs.maxPause()
	}
	j.limiter[i].Observe(j.sent, o)
}
