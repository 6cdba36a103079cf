package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestRateIsAppliedInTheEnd: the rate that a new configuration has for a value applies in this
// process, even if Redis gave no answer at the first try to set it.
func TestRateIsAppliedInTheEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	const yaml = `
limits: { account: { rate: %s, key: payload.account } }
jobs: { "x:limited": { limits: [account], hold: 100ms } }
`
	stop := s.serve(member{yaml: fmt.Sprintf(yaml, "1000/1s")})
	s.enqueuePayload("x:limited", "a", []byte(`{"account": "1"}`))
	s.awaitStarts("a", 1, 5*time.Second)
	stop()
	var failed atomic.Int64
	rdb := s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		args := fmt.Sprint(cmd.Args()...)
		if strings.Contains(args, "apply") && strings.Contains(args, "account:1") && failed.Add(1) == 1 {
			err := errors.New("READONLY You can't write against a read only replica.")
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	})
	s.serve(member{yaml: fmt.Sprintf(yaml, "2/1s"), rdb: rdb})
	for i := range 6 {
		s.enqueuePayload("x:limited", fmt.Sprint("b", i), []byte(`{"account": "1"}`))
	}
	starts := s.awaitStarts("b", 6, 20*time.Second)
	if failed.Load() == 0 {
		t.Fatal("nothing failed")
	}
	if took := starts[5].at.Sub(starts[0].at); took < 1900*time.Millisecond {
		t.Errorf("6 jobs at 2 a second took %v", took)
	}
}

// TestLostAnswerOfPark: the answer of a call that parked a job is lost. When the call is repeated
// while the job runs again, it does not park the job again. The job runs once at a time.
func TestLostAnswerOfPark(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	var lost atomic.Bool
	rdb := s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if parked(cmd) == 0 {
			return next(ctx, cmd)
		}
		err := next(ctx, cmd)
		if err == nil && lost.CompareAndSwap(false, true) {
			<-time.After(3 * time.Second) // go-redis's read timeout; it sends the command again
			return next(ctx, cmd)
		}
		return err
	})
	var mu sync.Mutex
	running, twice := map[string]int{}, false
	handle := func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		mu.Lock()
		running[id]++
		twice = twice || running[id] > 1
		mu.Unlock()
		<-time.After(4 * time.Second)
		mu.Lock()
		running[id]--
		mu.Unlock()
		return nil
	}
	const yaml = `
limits: { api: { rate: 1/1s } }
jobs: { "x:limited": { limits: [api], hold: 0 } }
`
	s.serve(member{name: "one", yaml: yaml, rdb: rdb, handle: handle})
	for i := range 4 {
		s.enqueue("x:limited", fmt.Sprint("x", i))
	}
	s.await(10*time.Second, func() (bool, string) { return lost.Load(), "none has parked" })
	s.serve(member{name: "two", yaml: yaml, handle: handle})
	s.awaitDone("default", 40*time.Second)
	if n := len(s.seen("x")); n != 4 || twice {
		t.Errorf("4 jobs started %d times; one ran twice at a time: %v", n, twice)
	}
}

// TestLostAnswerOfAnEnd: the answer of the call that ended a job's attempt is lost. When the call is repeated, the job is in a
// later attempt, here or in another process: it was enqueued again, or retried. The call does not end that one.
func TestLostAnswerOfAnEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		ends   func(args []any) bool // whether a script with these keys ends the attempt
		result error                 // of the first attempt
	}{
		"done": {func(args []any) bool {
			return args[3] == "asynq:{default}:active" && args[7] == "asynq:{default}:processed"
		}, nil},
		"retry": {func(args []any) bool {
			return args[4] == "asynq:{default}:active" && args[6] == "asynq:{default}:retry"
		}, errors.New("fails")},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(s *site) {
				again := func() {
					if tt.result == nil {
						s.enqueue("x:limited", "nightly")
					}
				}
				var lost atomic.Bool
				repeated := make(chan struct{})
				rdb := s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					err := next(ctx, cmd)
					if args := cmd.Args(); err == nil && strings.HasPrefix(cmd.Name(), "eval") && len(args) > 8 && tt.ends(args) && lost.CompareAndSwap(false, true) {
						again()
						s.awaitStarts("nightly", 2, 10*time.Second)
						err = next(ctx, cmd)
						close(repeated)
					}
					return err
				})
				end := make(chan struct{})
				var attempts atomic.Int64
				m := member{yaml: fiftyPerSecond, rdb: rdb, asynq: asynq.Config{
					Concurrency: 1, DelayedTaskCheckInterval: 50 * time.Millisecond, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
				}, handle: func(ctx context.Context, _ *asynq.Task) error {
					if attempts.Add(1) == 1 {
						return tt.result
					}
					select {
					case <-end:
					case <-ctx.Done():
					}
					return ctx.Err()
				}}
				s.serve(m)
				s.enqueue("x:limited", "nightly")
				s.awaitStarts("nightly", 1, 10*time.Second)
				m.rdb = nil
				s.serve(m)
				<-repeated
				if q := s.queue("default"); q.Active != 1 || q.Retry != 0 {
					s.t.Errorf("while the later attempt runs: %+v", q)
				}
				close(end)
				s.await(10*time.Second, func() (bool, string) {
					q := s.queue("default")
					return q.Size == 0, fmt.Sprintf("%+v", q)
				})
				if n := len(s.seen("nightly")); n != 2 {
					s.t.Errorf("%d starts, want 2", n)
				}
			})
		})
	}
}
