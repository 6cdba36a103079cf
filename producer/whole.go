package producer

import (
	"context"
	_ "embed"
	"slices"

	"github.com/redis/go-redis/v9"
)

//go:embed whole.lua
var wholeLua string

// whole is the Redis client that write gives to asynq for jobs with a unique lock, and for
// those that replace archived ones. It puts asynq's own script, which writes the task, into one
// that undoes its changes if the task is refused. So nothing is left behind and no archived job
// is lost.
type whole struct{ gatherer }

// EvalSha answers that the script is unknown, so that asynq sends its text.
func (whole) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(unknownScript{})
	return cmd
}

// Eval runs the script within whole.lua.
func (w whole) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	e := callOf(ctx).entry
	if e.job.UniqueFor > 0 {
		e.lock = keys[0]
	}
	keys = append(slices.Clone(keys), e.taskKey(e.id), e.archiveKey())
	args = append(slices.Clone(args), e.id, e.replaces(), e.job.UniqueFor > 0)
	both := redis.NewScript("local function enqueue()\n" + script + "\nend\n" + wholeLua)
	return both.Run(ctx, w.gatherer, keys, args...)
}

// unknownScript is the error of Redis for a script that it does not have.
type unknownScript struct{}

var _ redis.Error = unknownScript{}

func (unknownScript) Error() string { return "NOSCRIPT the script is sent as text" }
func (unknownScript) RedisError()   {}
