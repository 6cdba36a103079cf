package throttle

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// directFor bounds a call that the caller of a request makes itself, where the
// Redis client heeds deadlines, and so how long the end of its context may go
// unheard.
const directFor = abandonPatience

// heedsDeadlines reports whether rdb gives up waiting for a reply at the
// deadline of the call's context. go-redis does only if it is told to, and not
// to do without deadlines (timeouts of -2).
func heedsDeadlines(rdb redis.Scripter) bool {
	heeds := func(told bool, read, write time.Duration) bool { return told && read >= 0 && write >= 0 }
	switch rdb := rdb.(type) {
	case *redis.Client:
		o := rdb.Options()
		return heeds(o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout)
	case *redis.ClusterClient:
		o := rdb.Options()
		return heeds(o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout)
	}
	return false
}

// mayServe reports whether the caller of a request may make the call for it
// itself: Redis has answered, and soon; and if it does not now, the caller
// can turn to what else it waits for, or there is nothing else.
func (q *queue) mayServe(ctx context.Context, w *waiter, now time.Time) bool {
	return q.c.met.Load() && q.trouble == nil && q.roundTrips.n > 0 && q.roundTrips.median() < directFor/4 &&
		(w.until.IsZero() || w.now || w.until.Sub(now) > directFor) &&
		(q.c.heeds || ctx.Done() == nil && w.until.IsZero())
}

// serve makes the call for a batch on the goroutine of a caller, which spares
// the caller the start of a runner and being woken by it. A call that is not
// answered in time is repeated by a runner, like any other.
func (q *queue) serve(ctx context.Context, b *batch) {
	defer q.c.wg.Done()
	answered := false
	defer func() { q.handOver(b, answered) }() // also if a hook of the Redis client panics
	ctx, cancel := context.WithTimeout(ctx, directFor)
	defer cancel()
	answered = q.attempt(ctx, b) == nil
}

// handOver leaves what there is to do after serve to a runner.
func (q *queue) handOver(b *batch, answered bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	switch {
	case !answered:
		q.c.wg.Go(func() {
			q.send(b)
			q.run()
		})
	case q.toAsk(now) || q.toCheck(now):
		q.c.wg.Go(q.run)
	default:
		q.rest(now)
	}
}
