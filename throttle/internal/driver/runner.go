package driver

import (
	"context"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
)

// run makes calls as long as there is something to ask.
func (q *queue) run() {
	runtime.Gosched() // those who are about to ask or give back at the same time come first
	q.proceed(line.Event{Kind: line.Ready})
}

// proceed makes the calls that follow from what happened.
func (q *queue) proceed(e line.Event) {
	for {
		q.mu.Lock()
		out := q.step(e)
		call, after := out.Call, out.After
		q.mu.Unlock()
		if after > 0 {
			q.pause(after)
		}
		switch {
		case call != nil:
			shared, landed := q.c.sharing.join(q, call)
			if shared {
				return
			}
			e = q.made(q.c.ctx, call, landed)
		case after > 0:
			e = line.Event{Kind: line.Ready}
		default:
			return
		}
	}
}

// answered handles the result of a call that others made together with theirs, and leaves
// what there is to do to a runner.
func (q *queue) answered(call *line.Call, r line.Reply) {
	q.mu.Lock()
	out := q.step(line.Event{Kind: line.Answered, Call: call, Answer: r, Serves: true})
	again := out.Call
	q.mu.Unlock()
	if again != nil {
		q.c.wg.Go(func() { q.proceed(line.Event{Kind: line.Again, Call: again}) })
	}
}

// make makes a call, and returns its result.
func (q *queue) make(ctx context.Context, call *line.Call) line.Event {
	stop := q.beside(call)
	defer stop()
	keys, args := call.With(q.c.now())
	value, sent, err := q.c.call(ctx, call.Script, keys, args)
	over := err != nil && q.c.ctx.Err() != nil
	if over {
		err = line.ErrClosed
	}
	return line.Event{Kind: line.Answered, Call: call, Answer: line.Reply{Value: value, Err: err, Sent: sent, Final: over}}
}

// beside has the configuration checked beside a call, if the call needs that. The returned
// function cancels the check unless it is under way.
func (q *queue) beside(call *line.Call) (stop func()) {
	if call.Beside == 0 {
		return func() {}
	}
	q.c.wg.Add(1)
	t := time.AfterFunc(call.Beside, func() {
		defer q.c.wg.Done()
		q.mu.Lock()
		check := q.step(line.Event{Kind: line.Beside}).Call
		q.mu.Unlock()
		e := q.make(q.c.ctx, check)
		q.mu.Lock()
		q.step(e)
		q.mu.Unlock()
	})
	return func() {
		if t.Stop() {
			q.c.wg.Done()
		}
	}
}

// pause waits before the next call, and ends when somebody asks who cannot wait.
func (q *queue) pause(d time.Duration) {
	ctx, cancel := context.WithTimeout(q.c.ctx, d)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-q.poke:
	}
}

// serve makes a call on the goroutine of a caller. The caller then need not wait until a
// runner has started, and until the runner wakes it. A call that is not answered in time is
// repeated by a runner, like any other.
func (q *queue) serve(ctx context.Context, call *line.Call) {
	defer q.c.wg.Done()
	e := line.Event{Kind: line.Again, Call: call}
	defer func() { // also if a hook of the Redis client panics
		if e.Call != nil {
			q.c.wg.Go(func() { q.proceed(e) })
		}
	}()
	patience, cancel := ctx, context.CancelFunc(nil)
	for e.Call != nil {
		shared, landed := q.c.sharing.join(q, e.Call)
		if shared {
			e.Call = nil
			return
		}
		if cancel == nil {
			patience, cancel = context.WithTimeout(ctx, line.ServesFor)
			defer cancel()
		}
		answered := q.made(patience, e.Call, landed)
		if answered.Answer.Err != nil {
			return
		}
		answered.Serves = true
		q.mu.Lock()
		e.Call = q.step(answered).Call
		q.mu.Unlock()
	}
}

// made is make, and lets other calls go afterwards, even if it panics.
func (q *queue) made(ctx context.Context, call *line.Call, landed func()) line.Event {
	defer landed()
	return q.make(ctx, call)
}

// heedsDeadlines reports whether rdb gives up waiting for a reply at the deadline of the
// call's context. go-redis does so only if it is told to, and is not told to do without
// deadlines (timeouts of -2).
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
