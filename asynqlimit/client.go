package asynqlimit

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// client is the Redis client that an asynq.Server is given. It is the user's, except that it sees
// the scripts with which asynq takes tasks from their queues and ends their attempts:
//
//   - a dequeue waits until there is capacity for a task, and learns how the task has waited;
//   - a task that was put off parks instead of being retried or archived;
//   - a task that only waited goes back to its queue when its process dies or drains;
//   - a script that ends an attempt is tried again until the task's lease is over. asynq itself
//     tries again with a context that has ended;
//   - asynq's script that ends an attempt ends no later attempt of the same task, and costs Redis less while
//     many other tasks wait;
//   - when asynq extends a lease, the client learns when the lease ends;
//   - when a server shows itself to asynq's Inspector, the client learns whether several servers have it.
//
// Scripts that it does not know pass through, and it logs a warning.
type client struct {
	redis.UniversalClient
	l     *Limits
	owner *owner
}

// EvalSha implements redis.Scripter.
func (c client) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	return c.eval(ctx, keys, args, script{sha1: sha1})
}

// Eval implements redis.Scripter.
func (c client) Eval(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	return c.eval(ctx, keys, args, script{text: text})
}

// ZAdd is how asynq's servers show themselves.
func (c client) ZAdd(ctx context.Context, key string, members ...redis.Z) *redis.IntCmd {
	if key == line.Servers {
		for _, m := range members {
			c.owner.shows(m.Member)
		}
	}
	return c.UniversalClient.ZAdd(ctx, key, members...)
}

// ZAddXX is how asynq extends leases.
func (c client) ZAddXX(ctx context.Context, key string, members ...redis.Z) *redis.IntCmd {
	cmd := c.UniversalClient.ZAddXX(ctx, key, members...)
	if queue, leases := line.LeasesOf(key); leases && cmd.Err() == nil {
		for _, m := range members {
			id, _ := m.Member.(string)
			if a := c.l.attempts.get(queue, id); a != nil {
				a.extend(leaseEnd(int64(m.Score)))
			}
		}
	}
	return cmd
}

func (c client) eval(ctx context.Context, keys []string, args []any, s script) *redis.Cmd {
	call := line.Recognize(keys, args)
	asynqs := func() *redis.Cmd { return s.run(ctx, c.UniversalClient, keys, args) }
	switch {
	case call.Step == line.Dequeue && !(c.l.serving.Load() && c.owner.takes()):
		return c.refuse()
	case c.l.serving.Load():
	case c.l.attempts.get(call.Queue, call.ID) == nil:
		return asynqs()
	}
	switch call.Step {
	case line.Dequeue:
		if _, serves := c.l.weights[call.Queue]; !serves {
			c.l.foreign.Do(func() {
				c.l.logger.Error("the server asks for a queue that Limits.Configure did not return, and does not get its jobs: give Configure all queues", "queue", call.Queue)
			})
			return redis.NewCmdResult(nil, redis.Nil)
		}
		return c.l.intake.next(ctx, call)
	case line.Done:
		a := c.l.attempts.get(call.Queue, call.ID) // afterwards it may be one of the next task of this id
		cmd := c.repeat(ctx, c.ending(ctx, a, s, keys, args))
		if cmd.Err() == nil {
			c.l.ended(call.Queue, call.ID, true)
			if a != nil {
				a.note()
				c.l.attempts.drop(a)
			}
		}
		return cmd
	case line.Retry, line.Archive, line.Requeue:
		return c.end(ctx, call, s, keys, args)
	case line.Unknown:
		c.l.unknown.Do(func() {
			c.l.logger.Warn("a script of asynq is not known, and runs as it is: tasks may be retried or archived that only waited", "keys", keys)
		})
	}
	return asynqs()
}

// ending is a call of asynq's script that ends an attempt: the attempt a, if it is known.
func (c client) ending(ctx context.Context, a *attempt, s script, keys []string, args []any) func() *redis.Cmd {
	if a == nil {
		return func() *redis.Cmd { return s.run(ctx, c.UniversalClient, keys, args) }
	}
	ours, known := c.l.endings.of(s)
	if !known {
		return func() *redis.Cmd { return redis.NewCmdResult(nil, errNoScript) }
	}
	args = append(slices.Clip(args), line.TaskKey(a.queue, a.id), a.by)
	return func() *redis.Cmd { return ours.run(ctx, c.UniversalClient, keys, args) }
}

// end ends an attempt. A call without a deadline is that of asynq's recoverer: the attempt may be one of
// a process that died, or a later one, here or elsewhere.
func (c client) end(ctx context.Context, call line.Call, s script, keys []string, args []any) *redis.Cmd {
	a := c.l.attempts.get(call.Queue, call.ID)
	if _, leased := ctx.Deadline(); a != nil && (leased || call.Step == line.Requeue) {
		return c.settle(ctx, a, call, c.ending(ctx, a, s, keys, args))
	}
	return c.recovered(ctx, a, call, c.ending(ctx, nil, s, keys, args))
}

// settle ends an attempt of this process: with asynq's own script or, if the task waited or was put off,
// with one of ours that parks the task or gives it back.
func (c client) settle(ctx context.Context, a *attempt, call line.Call, asynqs func() *redis.Cmd) *redis.Cmd {
	a.ask() // if it never began: nobody has to wait for it
	c.l.caller.answered(a)
	var cmd *redis.Cmd
	f, parking := a.settle(call.Step)
	switch f {
	case returns:
		cmd = c.wait(ctx, a, func() error {
			c.l.attempts.wentBack(a)
			return c.l.lines.GiveBack(ctx, call.Queue, call.ID, parking)
		})
	case parks:
		message := call.Message
		if call.Failure {
			message = nil // this message counts a retry
		}
		cmd = c.wait(ctx, a, func() error {
			return c.l.lines.Park(ctx, call.Queue, line.ToPark{ID: call.ID, Message: message, How: parking})
		})
		if cmd.Err() == nil {
			c.l.caller.parked(call.Queue, parking)
		}
	default:
		c.l.rooms.of(a).leaving(a)
		cmd = c.repeat(ctx, asynqs)
		if refused := a.wasRefused(); cmd.Err() == nil && (call.Step == line.Archive || a.wait.Refused != 0 && !refused) {
			c.failed(ctx, call, refused)
		}
	}
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		return cmd // asynq sends the whole script next, and needs the attempt for that
	}
	waited := f == parks || f == returns
	c.l.ended(call.Queue, call.ID, !waited && call.Step == line.Archive)
	if !waited || cmd.Err() == nil {
		a.note()
	}
	if a.at() == taken { // its time was over before it began, and nobody else ends it
		a.position.leave()
		a.finish(false)
	}
	c.l.attempts.drop(a)
	return cmd
}

// failed notes that asynq retries or archives a task that has failed, and whether its API refused it this time.
func (c client) failed(ctx context.Context, call line.Call, refused bool) {
	if err := c.l.lines.Failed(ctx, call.Queue, call.ID, refused); err != nil {
		c.l.logger.Warn("cannot note that a job failed: its unique lock may last longer than its producer said, and earlier refusals of its API may count", "queue", call.Queue, "task_id", call.ID, "error", err)
	}
}

// wait calls try, which parks a task or gives it back, until it succeeds. Until then the task
// still counts as waiting: when its lease is over, others bring it back.
func (c client) wait(ctx context.Context, a *attempt, try func() error) *redis.Cmd {
	return c.repeat(ctx, func() *redis.Cmd {
		c.l.rooms.of(a).stay(ctx, a)
		cmd := result(try())
		if err := cmd.Err(); err != nil && !redis.HasErrorPrefix(err, "NOSCRIPT") {
			c.l.rooms.of(a).waits(a)
		}
		return cmd
	})
}

// recovered handles tasks whose leases have lapsed, as their processes have died or stood still: asynq's
// recoverer retries or archives them. Tasks that only waited go back to their queue. If a lease lives,
// another process has given the task back meanwhile, and somebody has taken it again: nothing happens. a is
// the attempt of the task in this process, or nil.
func (c client) recovered(ctx context.Context, a *attempt, call line.Call, asynqs func() *redis.Cmd) *redis.Cmd {
	if call.Step == line.Requeue {
		return c.repeat(ctx, asynqs)
	}
	if a != nil {
		c.l.attempts.wentBack(a) // before anybody can take it again
	}
	waited, err := c.l.lines.GiveBackListed(ctx, call.Queue, call.ID)
	switch {
	case err != nil:
		return result(err)
	case waited:
		if a != nil { // this process stood still: its own attempt does not begin any more
			a.settle(call.Step)
			a.ask()
			c.l.caller.answered(a)
			c.l.ended(call.Queue, call.ID, false)
			a.note()
			c.l.attempts.drop(a)
		}
		c.l.logger.Info("a job waited in a process that died, and is back in its queue", "task_id", call.ID, "queue", call.Queue)
		return result(nil)
	case a != nil:
		return c.settle(ctx, a, call, asynqs)
	}
	cmd := asynqs()
	if call.Step == line.Archive && cmd.Err() == nil {
		c.failed(ctx, call, true) // nobody knows
	}
	return cmd
}

// result is what asynq gets for a script of ours. If a task is not active any more, that is
// final, but asynq would try again on an error.
func result(err error) *redis.Cmd {
	if err != nil && !errors.Is(err, line.ErrNotActive) {
		return redis.NewCmdResult(nil, err)
	}
	return redis.NewCmdResult("OK", nil)
}

// tryAgain is the time between two tries to end an attempt.
const tryAgain = 500 * time.Millisecond

// repeat tries until Redis has answered, or until the lease of the task is over, when ctx ends.
// The calls of asynq's recoverer have no deadline, and are tried once.
func (c client) repeat(ctx context.Context, try func() *redis.Cmd) *redis.Cmd {
	for {
		cmd := try()
		err := cmd.Err()
		switch {
		case err == nil, redis.HasErrorPrefix(err, "NOSCRIPT"):
			return cmd
		case line.IsNotFound(err): // it has ended: the answer of an earlier try was lost, maybe one by the Redis client itself
			return result(nil)
		}
		if _, lease := ctx.Deadline(); !lease {
			return cmd
		}
		select {
		case <-ctx.Done():
			return cmd
		case <-c.l.late.Done():
			return cmd
		case <-time.After(tryAgain):
		}
	}
}
