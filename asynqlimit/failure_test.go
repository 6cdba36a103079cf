package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// awaitArchived waits until n tasks have failed as often as they may, and no others are left.
func (s *site) awaitArchived(n int, within time.Duration) {
	s.t.Helper()
	s.await(within, func() (bool, string) {
		q := s.queue("default")
		return q.Archived == n && q.Size == n, fmt.Sprintf("%d starts; %+v", len(s.seen("")), q)
	})
}

// TestTimeoutBeforeAcquire: a handler that acquires its permits itself has started. If the job's
// time is over before it has permits, it has failed, as often as its producer allows.
func TestTimeoutBeforeAcquire(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		hold   bool
		linger time.Duration
	}{
		{"dials before it holds", false, 50 * time.Millisecond},
		{"dials after it has held", true, 50 * time.Millisecond},
		{"returns as soon as its context ends", true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			const jobs = 10
			for i := range jobs {
				s.enqueue("x:limited", fmt.Sprint("x", i), asynq.MaxRetry(0), asynq.Timeout(time.Second))
			}
			s.serve(member{yaml: `
limits: { api: { rate: 100/1s } }
jobs: { "x:limited": { limits: [api] } }
`, opts: asynqlimit.Options{HandlersAcquire: []string{"x"}}, handle: func(ctx context.Context, _ *asynq.Task) error {
				if tt.hold {
					if err := asynqlimit.Hold(ctx); err != nil {
						return err
					}
				}
				<-ctx.Done() // a dial that nobody answers
				time.Sleep(tt.linger)
				return ctx.Err()
			}})
			s.awaitArchived(jobs, 10*time.Second)
			if n := len(s.seen("x")); n != jobs {
				t.Errorf("%d starts of %d jobs of one attempt each", n, jobs)
			}
		})
	}
}

// TestScriptsForgotten: Redis loses its scripts, as after a restart, when the time of jobs is
// over. asynq then sends the script with which it ends them again, and by then their handlers
// have returned.
func TestScriptsForgotten(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	const jobs = 10
	for i := range jobs {
		s.enqueue("x:limited", fmt.Sprint("x", i), asynq.MaxRetry(0), asynq.Timeout(time.Second))
	}
	var sent atomic.Int64
	s.serve(member{yaml: fiftyPerSecond, rdb: s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if args := fmt.Sprint(cmd.Args()...); cmd.Name() == "eval" && strings.Contains(args, "asynq:{default}:archived") {
			sent.Add(1)
			time.Sleep(100 * time.Millisecond) // the way to Redis
		}
		return next(ctx, cmd)
	}), handle: func(ctx context.Context, _ *asynq.Task) error {
		<-ctx.Done()
		return ctx.Err()
	}})
	s.awaitArchived(jobs, 10*time.Second)
	if sent.Load() == 0 {
		t.Error("Redis had asynq's script")
	}
}

// TestMorePermitsThanTime: the handler of a job has used its permits, and the permits for its
// next request are due only after the job's time. That attempt has failed.
func TestMorePermitsThanTime(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	s.enqueue("x:limited", "x", asynq.MaxRetry(0), asynq.Timeout(2*time.Second))
	s.serve(member{yaml: `
limits: { api: { rate: 1/3s } }
jobs: { "x:limited": { limits: [api] } }
`, handle: func(ctx context.Context, _ *asynq.Task) error { return asynqlimit.AcquireMore(ctx) }})
	s.awaitArchived(1, 15*time.Second)
	if n := len(s.seen("x")); n != 1 {
		t.Errorf("%d starts of a job of one attempt", n)
	}
}

// TestMorePermitsWhileDraining: what a job has sent is sent once. If it waits for the permits of its next request when its
// process is told to end, it gets them, and ends there.
func TestMorePermitsWhileDraining(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	s.enqueue("x:limited", "x")
	var got atomic.Int64
	m := member{yaml: `
limits: { api: { rate: 1/2s } }
jobs: { "x:limited": { limits: [api] } }
`, handle: func(ctx context.Context, _ *asynq.Task) error {
		err := asynqlimit.AcquireMore(ctx)
		if err == nil {
			got.Add(1)
		}
		return err
	}}
	stop := s.serve(m)
	s.awaitStarts("x", 1, 5*time.Second)
	stop()
	if n := got.Load(); n != 1 {
		t.Errorf("it got the permits of its second request %d times", n)
	}
	if info, err := s.inspector.GetQueueInfo("default"); err != nil || info.Size != 0 {
		t.Errorf("it is still there: %+v, %v", info, err)
	}
}

// TestMorePermitsAfterTheEnd: a job that waits for permits that are due only after its process has to end does not hold that
// up. It goes back to its queue.
func TestMorePermitsAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	s.enqueue("x:limited", "x", asynq.MaxRetry(0))
	stop := s.serve(member{yaml: `
limits: { api: { rate: 1/1m } }
jobs: { "x:limited": { limits: [api] } }
`, handle: func(ctx context.Context, _ *asynq.Task) error { return asynqlimit.AcquireMore(ctx) }})
	s.awaitStarts("x", 1, 5*time.Second)
	began := time.Now()
	stop()
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the end took %v", took)
	}
	if info, err := s.inspector.GetQueueInfo("default"); err != nil || info.Pending != 1 {
		t.Errorf("it is not back: %+v, %v", info, err)
	}
}

// TestDeadlineOver: jobs whose deadline has passed fail without a start, and hold up no others:
// each has its position only as long as asynq has the job.
func TestDeadlineOver(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	for i := range 60 {
		s.enqueue("x:limited", fmt.Sprint("late", i), asynq.Deadline(time.Now().Add(-time.Hour)), asynq.MaxRetry(0))
	}
	s.enqueue("x:limited", "good")
	s.serve(member{yaml: fiftyPerSecond, asynq: asynq.Config{Concurrency: 4}})
	s.awaitStarts("good", 1, 10*time.Second) // if each of them had a slot for 5 s, it would take a minute
	s.awaitArchived(60, 10*time.Second)
	if n := len(s.seen("late")); n != 0 {
		t.Errorf("%d of them started", n)
	}
}

// TestPauseAfterHold: a limit is paused after a handler has held its permits, and before it acquires them. The job parks at
// once: it does not wait for the end of the pause in its slot.
func TestPauseAfterHold(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{3 * time.Second, time.Minute} {
		t.Run(pause.String(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			s.enqueue("x:limited", "x", asynq.MaxRetry(0))
			took := make(chan time.Duration, 1)
			var ran atomic.Bool
			s.serve(member{yaml: `
limits: { api: { rate: 2/1s } }
jobs: { "x:limited": { limits: [api], permits: 2 } }
`, opts: asynqlimit.Options{HandlersAcquire: []string{"x"}}, handle: func(ctx context.Context, _ *asynq.Task) error {
				if ran.Swap(true) {
					return nil
				}
				if err := s.limiter("api").Acquire(ctx, 1); err != nil { // so that the job's are due later
					return err
				}
				if err := asynqlimit.Hold(ctx); err != nil {
					return err
				}
				if err := s.limiter("api").Pause(ctx, pause); err != nil {
					return err
				}
				<-time.After(200 * time.Millisecond) // it dials
				began := time.Now()
				err := asynqlimit.Acquire(ctx)
				took <- time.Since(began)
				if _, parks := errors.AsType[*asynqlimit.ThrottledError](err); !parks {
					t.Errorf("Acquire: %v", err)
				}
				return err
			}})
			if d := <-took; d > time.Second {
				t.Errorf("Acquire returned after %v", d)
			}
			s.awaitWaiting("default", 1)
		})
	}
}

// TestKeyOfAnotherProgram: if the key of a limit holds data of another program, a server says so when it starts, and runs the
// jobs of all other limits. The jobs of that limit wait until the key is gone.
func TestKeyOfAnotherProgram(t *testing.T) {
	onBoth(t, func(s *site) {
		if err := s.rdb.Set(t.Context(), "api", "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		var log testkit.Buffer
		s.enqueue("x", "waits")
		s.enqueue("y", "runs")
		s.serve(member{
			yaml: "limits: { api: { rate: 10/1s }, web: { rate: 10/1s } }\njobs: { x: { limits: [api], hold: 0 }, y: { limits: [web] } }\n",
			opts: asynqlimit.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))},
		})
		s.awaitStarts("runs", 1, 5*time.Second)
		for _, want := range []string{`limit=api`, "another type", "redis-cli"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not say %q:\n%s", want, &log)
			}
		}
		s.awaitWaiting("default", 1)
		if err := s.rdb.Del(t.Context(), "api").Err(); err != nil {
			t.Fatal(err)
		}
		s.awaitStarts("waits", 1, 10*time.Second)
	})
}
