package worker

import (
	"context"
	_ "embed"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/spare.lua
var spareLua string

// spared are tasks that were put off on their last attempt. asynq archives a
// task on its last attempt whatever error that ends with, so the Redis client
// that its servers are given puts these into the retry set instead: the task
// stays what it is, with its id, its retries and its lock.
type spared struct {
	script *redis.Script

	mu    sync.Mutex
	tasks map[string]sparedTask // by taskKey
	swept time.Time
}

type sparedTask struct {
	back  time.Time // when it comes back
	until time.Time // from then on, a task of that id is another one
}

// sparedFor is how long a task may be spared: what is left of its lease, asynq's
// cut-off behind that, the time between two looks of its recoverer, and a look.
// A task of that id which is lost later has begun elsewhere, and asynq archives it.
const sparedFor = 30*time.Second + 30*time.Second + time.Minute + 5*time.Second

func newSpared() *spared {
	return &spared{script: redis.NewScript(spareLua), tasks: map[string]sparedTask{}}
}

// taskKey is where asynq has a task.
func taskKey(queue, id string) string { return "asynq:{" + queue + "}:t:" + id }

// add notes that the task comes back at that time. asynq is about to archive it.
func (s *spared) add(key string, back time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.swept) > sparedFor {
		maps.DeleteFunc(s.tasks, func(_ string, t sparedTask) bool { return now.After(t.until) })
		s.swept = now
	}
	s.tasks[key] = sparedTask{back, now.Add(sparedFor)}
}

// remove forgets a task that is in the retry set, or begins another attempt.
func (s *spared) remove(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tasks, key)
}

func (s *spared) find(key string) (back time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tasks[key]
	return t.back, ok && !time.Now().After(t.until)
}

// has says whether a task of that id is spared, in any queue.
func (s *spared) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.tasks {
		if strings.HasSuffix(key, "}:t:"+id) {
			return true
		}
	}
	return false
}

// sparing is the Redis client that asynq's servers are given. It is the
// worker's, except that it does not let them archive what is spared.
type sparing struct {
	redis.UniversalClient
	spared  *spared
	stopped <-chan struct{} // closed when there is no time left to try again
}

// EvalSha implements redis.Scripter.
func (c sparing) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	if back, ok := c.spares(keys, args); ok {
		return c.spare(ctx, keys, args, back)
	}
	return c.UniversalClient.EvalSha(ctx, sha1, keys, args...)
}

// Eval implements redis.Scripter.
func (c sparing) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	if back, ok := c.spares(keys, args); ok {
		return c.spare(ctx, keys, args, back)
	}
	return c.UniversalClient.Eval(ctx, script, keys, args...)
}

// spares says whether a script is asynq's to archive a task, and the task is
// spared. Its keys begin with those of the task, of the active ones, of the
// leases and of the archive; its arguments with the task's id and message.
func (c sparing) spares(keys []string, args []any) (back time.Time, ok bool) {
	if len(keys) < 4 || len(args) < 2 || !strings.HasSuffix(keys[1], ":active") || !strings.HasSuffix(keys[3], ":archived") {
		return time.Time{}, false
	}
	return c.spared.find(keys[0])
}

// spare puts the task into the retry set. While Redis does not answer, or cannot
// write, it tries again until the task's lease is over, with which ctx ends.
func (c sparing) spare(ctx context.Context, keys []string, args []any, back time.Time) *redis.Cmd {
	retry := strings.TrimSuffix(keys[3], "archived") + "retry"
	for {
		cmd := c.spared.script.Run(ctx, c.UniversalClient, []string{keys[0], keys[1], keys[2], retry}, args[0], args[1], back.Unix())
		if notFound(cmd.Err()) {
			// It is in the retry set already, and the answer was lost, or somebody
			// deleted it. As an error, asynq would archive it later, when it runs again.
			cmd = redis.NewCmdResult("OK", nil)
		}
		if cmd.Err() == nil {
			c.spared.remove(keys[0])
			return cmd
		}
		if _, ok := c.spared.find(keys[0]); !ok {
			return cmd // asynq's recoverer sets no end
		}
		select {
		case <-ctx.Done():
			return cmd
		case <-c.stopped:
			return cmd
		case <-time.After(time.Second):
		}
	}
}

// notFound says whether a script of tasks answered that the task is not active.
// Other errors of Redis are no answer: it may be a replica, load its data, or lack
// replicas, and soon be none of that.
func notFound(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok && strings.HasSuffix(err.Error(), "NOT FOUND")
}
