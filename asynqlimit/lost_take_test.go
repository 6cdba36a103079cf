package asynqlimit_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestLostTakes: Redis stands still for some seconds, as it does while it forks or its disk is slow. It takes
// jobs for a server that has given up on the answer, and does so once more for each try. These jobs start when it goes on,
// and do not wait for asynq's recoverer.
func TestLostTakes(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	s := newSite(t, server.Addr)
	const jobs = 60
	for i := range jobs {
		s.enqueue("y:free", fmt.Sprintf("y%02d", i), asynq.MaxRetry(0))
	}
	stall := sync.OnceFunc(func() {
		server.Freeze()
		time.AfterFunc(8*time.Second, server.Thaw)
	})
	takes := 0
	stalling := s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if args := cmd.Args(); len(args) > 6 && args[6] == "asynq:{default}:lease" {
			if takes++; takes == 4 { // by then it takes several at a time
				stall()
			}
		}
		return next(ctx, cmd)
	})
	s.serve(member{yaml: fiftyPerSecond, rdb: stalling, asynq: asynq.Config{Concurrency: 100}})
	s.awaitStarts("y", jobs, 8*time.Second+10*time.Second)
	s.awaitDone("default", 10*time.Second)
	if n := len(s.seen("y")); n != jobs {
		t.Errorf("%d jobs started %d times", jobs, n)
	}
}
