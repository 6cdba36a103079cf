package asynqlimit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// TestDone: a task that is done leaves asynq's lists and is counted once, also if Redis has forgotten all scripts; and no script
// that takes it off reads the whole list of active tasks.
func TestDone(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *site) {
		const tasks = 60
		rdb := s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if args := cmd.Args(); cmd.Name() == "eval" && len(args) > 3 && strings.HasSuffix(fmt.Sprint(args[3]), ":active") {
				if text := fmt.Sprint(args[1]); strings.Contains(text, `"LREM", KEYS[1], 0`) && strings.Contains(text, "INCR") {
					s.t.Errorf("reads the whole list: %s", text)
				}
			}
			return next(ctx, cmd)
		})
		s.serve(member{yaml: "limits: {api: {rate: 100/1s}}\njobs: {x: {limits: [api]}}\n", rdb: rdb})
		for i := range tasks {
			unique, kept := asynq.Unique(time.Hour), asynq.Retention(time.Hour)
			opts := [][]asynq.Option{{}, {unique}, {kept}, {unique, kept}}[i%4]
			s.enqueuePayload("x", fmt.Sprintf("task-%02d", i), fmt.Append(nil, i), opts...)
			if i%10 == 5 {
				s.awaitStarts("task-", i, 10*time.Second)
				if err := s.rdb.ScriptFlush(s.t.Context()).Err(); err != nil {
					s.t.Fatal(err)
				}
			}
		}
		s.awaitStarts("task-", tasks, 20*time.Second)
		s.await(10*time.Second, func() (bool, string) {
			q := s.queue("default")
			return q.Active == 0 && q.Pending == 0 && q.Completed == tasks/2 && q.Size == tasks/2 && q.ProcessedTotal == tasks && q.FailedTotal == 0, fmt.Sprintf("%+v", q)
		})
		if n := len(s.seen("task-")); n != tasks {
			s.t.Errorf("%d starts of %d tasks", n, tasks)
		}
	})
}

// TestDoneWithoutTask: while a job runs, somebody deletes its task in Redis, or writes something else there. When the job is done, it
// is not active any more, and its slot is free.
func TestDoneWithoutTask(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(ctx context.Context, rdb redis.UniversalClient, key string) error{
		"deleted": func(ctx context.Context, rdb redis.UniversalClient, key string) error { return rdb.Del(ctx, key).Err() },
		"another": func(ctx context.Context, rdb redis.UniversalClient, key string) error {
			return rdb.Set(ctx, key, "x", 0).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(s *site) {
				s.enqueue("x", "first")
				s.enqueue("x", "second")
				s.serve(member{yaml: "limits: {api: {rate: 100/1s}}\njobs: {x: {limits: [api]}}\n", asynq: asynq.Config{Concurrency: 1},
					handle: func(ctx context.Context, _ *asynq.Task) error {
						if id, _ := asynq.GetTaskID(ctx); id == "first" {
							return spoil(ctx, s.rdb, "asynq:{default}:t:first")
						}
						return nil
					}})
				s.awaitStarts("second", 1, 5*time.Second)
				s.await(5*time.Second, func() (bool, string) {
					active, leases := s.rdb.LRange(s.t.Context(), "asynq:{default}:active", 0, -1).Val(), s.rdb.ZCard(s.t.Context(), "asynq:{default}:lease").Val()
					return len(active) == 0 && leases == 0, fmt.Sprintf("active are %v, with %d leases", active, leases)
				})
			})
		})
	}
}
