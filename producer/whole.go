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

// Eval runs the script within whole.lua.
func (w whole) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	e := callOf(ctx).entry
	if e.job.UniqueFor > 0 {
		e.lock = keys[0]
	}
	keys = append(slices.Clone(keys), e.taskKey(e.id), e.archiveKey())
	args = append(slices.Clone(args), e.id, e.replaces(), e.job.UniqueFor > 0)
	return w.gatherer.Eval(ctx, "local function enqueue()\n"+script+"\nend\n"+wholeLua, keys, args...)
}
