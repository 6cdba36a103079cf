package asynqlimit

import (
	"context"
	"errors"
	"fmt"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// Observe reports what the API made of the request that the job of ctx sent with its latest
// permits, for the limit of the job that adapts. It returns at once, and does nothing for jobs
// without such a limit.
//
// A handler need not call it: if it returns nil, its request was accepted; if it returns
// [RetryAfter], the request was refused; any other error says nothing about a limit. A handler
// that knows more calls Observe before it returns: with what the API says its limit is, or to say
// that the API accepted a request although the job fails.
func Observe(ctx context.Context, o throttle.Outcome) error {
	j := jobFrom(ctx)
	if j == nil {
		return fmt.Errorf("observe: %w", errNoJob)
	}
	j.tell(o)
	return nil
}

// Kept reports whether asynq keeps the job of ctx, with its result, once it is done. If not, nobody can read what its handler
// writes as its result at its end.
func Kept(ctx context.Context) bool {
	j := jobFrom(ctx)
	return j == nil || j.a == nil || j.a.kept
}

// Adapts reports whether a limit of the job of ctx adapts: then the limit itself makes sure that
// its API is asked less often, and a refused job need not wait long.
func Adapts(ctx context.Context) bool {
	j := jobFrom(ctx)
	return j != nil && j.adaptive() >= 0
}

// Preset is the preset of a limit of the job of ctx: it says whose headers the job's API sends.
// It is empty if no limit has a preset.
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

// NoEvidence says that the result of the job of ctx says nothing about its limits: for example,
// the API's server failed and asked for time. Then its result is not observed.
func NoEvidence(ctx context.Context) {
	if j := jobFrom(ctx); j != nil {
		j.observed = true
	}
}

// adaptive is the index of the job's limiter that adapts; -1 if none does.
func (j *job) adaptive() int {
	for i, d := range j.needs.draws {
		if d.Limit.Adapt != (throttle.Adapt{}) && i < len(j.limiter) {
			return i
		}
	}
	return -1
}

// observe reports what the handler's result says, unless the handler has called Observe.
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
