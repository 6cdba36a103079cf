package worker

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/refused.lua
var refusedLua string

// maxRefused is how many refused tasks of a limiter are remembered.
const maxRefused = 1000

// refusals is what the fleet knows about tasks whose API told them to try later.
// It is asked only when one does.
type refusals struct {
	rdb  redis.UniversalClient
	note *redis.Script
}

func newRefusals(rdb redis.UniversalClient) *refusals {
	return &refusals{rdb: rdb, note: redis.NewScript(refusedLua)}
}

// refusal is what an answer "try later" means, after those before.
type refusal struct {
	times  int64 // that this task was refused, with this one; 0 if that is unknown
	others bool  // others were, since its last time
}

// alone says whether only this task is refused.
func (r refusal) alone() bool { return r.times > 1 && !r.others }

// stayAway is how long a task stays away that is refused alone: twice as long each time.
func (r refusal) stayAway(after, most time.Duration) time.Duration {
	for n := r.times; n > 1 && after < most; n-- {
		after *= 2
	}
	return min(after, most)
}

// of notes a refusal by the API that the limiter is for. It counts for a while.
func (r *refusals) of(ctx context.Context, e *entry, limiter string, counts time.Duration) (refusal, error) {
	keys := []string{keysOf(limiter).refused}
	reply, err := r.note.Run(ctx, r.rdb, keys, e.name(), counts.Milliseconds(), maxRefused).Int64Slice()
	if err != nil {
		return refusal{}, err
	}
	if len(reply) != 2 {
		return refusal{}, fmt.Errorf("refused.lua: %d values where 2 were expected", len(reply))
	}
	return refusal{times: reply[0], others: reply[1] == 1}, nil
}
