package producer

import (
	"context"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// write enqueues the entries in their order, with one round trip for all. For each it returns
// asynq's answer, or an error.
//
// asynq has no call for many tasks. So each entry goes through asynq's own Enqueue in its own
// goroutine, over a client whose script calls wait for one another: once every goroutine has
// made its call, all calls are sent as one pipeline, in the order of the entries. So what asynq
// checks, stores and answers does not change, and its list of pending tasks has the order of
// the file.
//
// The error of a failed entry is that of Redis. asynq itself would pass it on only as text.
func (p *Producer) write(ctx context.Context, entries []entry) (infos []*asynq.TaskInfo, errs []error) {
	infos = make([]*asynq.TaskInfo, len(entries))
	errs = make([]error, len(entries))
	calls := make([]call, len(entries))
	moves := make(chan move, len(entries))
	for i := range entries {
		c := &calls[i]
		c.entry, c.moves, c.sent = &entries[i], moves, make(chan struct{}, 1)
		client := p.client
		if c.entry.replaces() || c.entry.job.UniqueFor > 0 {
			client = p.whole
		}
		go func() {
			infos[i], errs[i] = c.entry.enqueue(context.WithValue(ctx, callKey{}, c), client)
			if c.cmd != nil && c.cmd.Err() != nil {
				errs[i] = c.cmd.Err()
			}
			moves <- returned
		}()
	}
	for running := len(entries); running > 0; {
		for waiting := 0; waiting < running; {
			if <-moves == called {
				waiting++
			} else {
				running--
			}
		}
		sendAll(ctx, p.rdb, calls)
	}
	return infos, errs
}

// sendAll sends the calls that wait and lets their goroutines go on.
func sendAll(ctx context.Context, rdb redis.UniversalClient, calls []call) {
	pipe, known := rdb.Pipeline(), map[scriptOf]bool{}
	for i := range calls {
		if c := &calls[i]; c.script != nil {
			script := scriptOf{c.entry.job.queue(), c.script.Hash()}
			c.cmd = c.send(pipe, known[script])
			known[script] = true
		}
	}
	if pipe.Len() == 0 {
		return
	}
	_, _ = pipe.Exec(ctx) // each command carries its own error
	for i := range calls {
		if c := &calls[i]; c.script != nil {
			c.script = nil
			c.sent <- struct{}{}
		}
	}
}

// move is the next step of a goroutine of write that the others have to know.
type move bool

const (
	called   move = true  // it waits for its script call
	returned move = false // it is done
)

// call is one goroutine's script call on its way into the common pipeline. The goroutine and
// write own it in turn, and hand it over through moves and sent.
type call struct {
	entry  *entry
	moves  chan<- move
	sent   chan struct{}
	ctx    context.Context
	script *redis.Script // to be run; nil: the call does not wait
	keys   []string
	args   []any
	cmd    *redis.Cmd
}

// scriptOf is a script on the server of a queue.
type scriptOf struct{ queue, hash string }

type callKey struct{}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// do hands the call to write, and returns once it was sent and answered.
func (c *call) do(ctx context.Context, script *redis.Script, keys []string, args []any) *redis.Cmd {
	c.ctx, c.script, c.keys, c.args = ctx, script, keys, args
	c.moves <- called
	<-c.sent
	return c.cmd
}

// send puts the call into a pipeline. If the pipeline has the text of the script already, its hash is enough.
func (c *call) send(pipe redis.Pipeliner, known bool) *redis.Cmd {
	if known {
		return c.script.EvalSha(c.ctx, pipe, c.keys, c.args...)
	}
	return c.script.Eval(c.ctx, pipe, c.keys, c.args...)
}

// gatherer is the Redis client that write gives to asynq. Script calls go through the call in
// their context, everything else goes to Redis directly.
type gatherer struct{ redis.UniversalClient }

// EvalSha answers that the script is unknown, so that asynq sends its text. If some scripts of a pipeline were known and
// others not, the calls of these would come after those that were behind them.
func (gatherer) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(unknownScript{})
	return cmd
}

func (gatherer) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return callOf(ctx).do(ctx, redis.NewScript(script), keys, args)
}

// unknownScript is the error of Redis for a script that it does not have.
type unknownScript struct{}

var _ redis.Error = unknownScript{}

func (unknownScript) Error() string { return "NOSCRIPT the script is sent as text" }
func (unknownScript) RedisError()   {}
