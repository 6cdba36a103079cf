package asynqlimit

import (
	"context"
	"runtime/debug"
)

// trace begins the span of a wait for permits. What ends it is the user's, and may take long or panic. So it runs
// beside the job, and the handler that Options.Attempt wraps returns after it.
func (j *job) trace(ctx context.Context, limiters []string, permits int64) func(error) {
	var end func(error)
	if j.l.opts.Trace != nil {
		end = j.l.opts.Trace(ctx, limiters, permits)
	}
	if end == nil {
		return func(error) {}
	}
	return func(err error) {
		j.spans.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					j.l.logger.Error("what ends a span of Options.Trace panicked", "panic", p, "stack", string(debug.Stack()))
				}
			}()
			end(err)
		})
	}
}

// endSpan ends the span of the wait if it has failed.
func (j *job) endSpan(err error) {
	if err != nil {
		j.closeSpan(err)
	}
}

// closeSpan ends the span of the wait, if there is one.
func (j *job) closeSpan(err error) {
	if span := j.span; span != nil {
		j.span = nil
		span(err)
	}
}
