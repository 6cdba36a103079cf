package asynqlimit

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// script is one that asynq calls: by its text, or by its SHA-1 once Redis should have it.
type script struct{ sha1, text string }

func (s script) run(ctx context.Context, rdb redis.UniversalClient, keys []string, args []any) *redis.Cmd {
	if s.text != "" {
		return rdb.Eval(ctx, s.text, keys, args...)
	}
	return rdb.EvalSha(ctx, s.sha1, keys, args...)
}

// endings knows asynq's scripts that end an attempt, and those that run instead: see line.OfAttempt.
type endings struct {
	mu  sync.Mutex
	our map[string]string // by the SHA-1 of asynq's, that of ours
}

// of returns what runs in place of asynq's script. It is not known until asynq has sent the text.
func (d *endings) of(asynqs script) (ours script, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if asynqs.text == "" {
		ours.sha1, known = d.our[asynqs.sha1]
		return ours, known
	}
	if d.our == nil {
		d.our = map[string]string{}
	}
	ours.text = line.OfAttempt(asynqs.text)
	d.our[redis.NewScript(asynqs.text).Hash()] = redis.NewScript(ours.text).Hash()
	return ours, true
}

// errNoScript is Redis's answer to a call of a script that it does not have. asynq then sends the text.
const errNoScript = noScript("NOSCRIPT not known yet")

type noScript string

func (e noScript) Error() string { return string(e) }

// RedisError implements redis.Error.
func (noScript) RedisError() {}
