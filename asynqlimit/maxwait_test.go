package asynqlimit_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// TestMaxWait: an API always tells a job to try later. Until max_wait has passed since the first
// time, that is not a failure. Then it is one, and the job ends as its producer allows. The pause
// before its first attempt does not count.
func TestMaxWait(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *site) {
		const maxWait = 3 * time.Second
		goOn := s.stopLimit("api", "100/1s")
		s.serve(member{yaml: "limits: { api: { rate: 100/1s } }\njobs: { \"x:\": { limits: [api], max_wait: 3s } }\n",
			handle: func(context.Context, *asynq.Task) error { return asynqlimit.RetryAfter(300 * time.Millisecond) }})
		s.enqueue("x:refused", "refused", asynq.MaxRetry(0))
		enqueued := time.Now()
		s.await(10*time.Second, func() (bool, string) { return time.Since(enqueued) > maxWait+time.Second, "" })
		goOn()
		s.await(30*time.Second, func() (bool, string) {
			q := s.queue("default")
			return q.Archived == 1, s.state("refused")
		})
		starts := s.seen("refused")
		if took := starts[len(starts)-1].at.Sub(starts[0].at); took < maxWait {
			s.t.Errorf("it failed %v after its first refusal, want %v at least", took, maxWait)
		}
		info, err := s.inspector.GetTaskInfo("default", "refused")
		if err != nil || !strings.Contains(info.LastErr, "refused by its API for") {
			s.t.Errorf("%+v, %v: want it to say for how long it was refused", info, err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.failures) != 1 {
			s.t.Errorf("the server's ErrorHandler saw %v, want one failure", s.failures)
		}
	})
}

// TestMaxWaitIsOfTheJob: a job that was refused once and then waits for its limit longer than
// max_wait has not used max_wait up: its next refusal is not a failure.
func TestMaxWaitIsOfTheJob(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *site) {
		l := s.limiter("api")
		if _, err := l.TrySetRate(s.t.Context(), throttle.Rate{Permits: 100, Interval: time.Second}); err != nil {
			s.t.Fatal(err)
		}
		var tries atomic.Int64
		s.serve(member{yaml: "limits: { api: { rate: 100/1s } }\njobs: { \"x:\": { limits: [api], max_wait: 4s } }\n",
			handle: func(ctx context.Context, _ *asynq.Task) error {
				switch tries.Add(1) {
				case 1: // nor does the pause count for the job
					return errors.Join(l.Pause(ctx, 9*time.Second), asynqlimit.RetryAfter(100*time.Millisecond))
				case 2:
					return asynqlimit.RetryAfter(100 * time.Millisecond)
				}
				return nil
			}})
		s.enqueue("x:1", "once", asynq.MaxRetry(0))
		s.awaitStarts("once", 3, 40*time.Second)
		s.awaitDone("default", 20*time.Second)
	})
}

// TestRefusalsBeforeAFailure: a job that was refused, then failed for another reason, and is refused again later, has
// not been refused all the time.
func TestRefusalsBeforeAFailure(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *site) {
		var tries atomic.Int64
		s.serve(member{yaml: "limits: { api: { rate: 100/1s } }\njobs: { \"x:\": { limits: [api], max_wait: 2s } }\n",
			asynq: asynq.Config{DelayedTaskCheckInterval: 100 * time.Millisecond, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 4 * time.Second }},
			handle: func(context.Context, *asynq.Task) error {
				switch tries.Add(1) {
				case 1, 3:
					return asynqlimit.RetryAfter(100 * time.Millisecond)
				case 2:
					return errors.New("it fails")
				}
				return nil
			}})
		s.enqueue("x:1", "once", asynq.MaxRetry(1))
		s.awaitStarts("once", 4, 20*time.Second)
		if q := s.queue("default"); q.Archived != 0 {
			s.t.Errorf("%+v", q)
		}
	})
}

// state returns what asynq says about a task.
func (s *site) state(id string) string {
	info, err := s.inspector.GetTaskInfo("default", id)
	if err != nil {
		return err.Error()
	}
	return info.State.String() + ": " + info.LastErr
}
