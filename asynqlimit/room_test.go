package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// roomOf returns the tasks of the queue that count as waiting in a process.
func (s *site) roomOf(queue string) []string {
	return s.rdb.SMembers(s.t.Context(), "asynq:{"+queue+"}:jt:room").Val()
}

// TestWhoWaitsHere: a task counts as waiting in its process until it runs, and no longer: neither
// while it runs, nor after its handler failed before it had permits or did not ask for them, nor
// after its time was over before it began.
func TestWhoWaitsHere(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	running, goOn := make(chan struct{}), make(chan struct{})
	m := member{yaml: `
limits: { api: { rate: 5/1s } }
jobs: { "x:limited": { limits: [api], hold: 10s } }
`, opts: asynqlimit.Options{HandlersAcquire: []string{"x"}}, asynq: asynq.Config{Concurrency: 20}}
	m.handle = func(ctx context.Context, task *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		if id == "free" {
			running <- struct{}{}
			<-goOn
			return nil
		}
		if err := asynqlimit.Hold(ctx); err != nil {
			return err
		}
		switch {
		case strings.HasPrefix(id, "bad"):
			return errors.New("dial tcp: connection refused")
		case strings.HasPrefix(id, "idle"):
			return nil
		}
		return asynqlimit.Acquire(ctx)
	}
	for i := range 8 {
		s.enqueue("x:limited", fmt.Sprint("good", i))
		s.enqueue("x:limited", fmt.Sprint("idle", i))
		s.enqueue("x:limited", fmt.Sprint("bad", i), asynq.MaxRetry(0))
		s.enqueue("x:limited", fmt.Sprint("late", i), asynq.MaxRetry(0), asynq.Deadline(time.Now().Add(-time.Hour)))
	}
	stop := s.serve(m)
	s.awaitArchived(16, 30*time.Second)
	s.await(5*time.Second, func() (bool, string) {
		room := s.roomOf("default")
		return len(room) == 0, fmt.Sprintf("over, and still listed: %q", room)
	})
	s.enqueue("y:free", "free")
	<-running
	if room := s.roomOf("default"); len(room) > 0 {
		t.Errorf("runs, and listed: %q", room)
	}
	close(goOn)
	s.enqueue("x:limited", "bad last", asynq.MaxRetry(0))
	s.awaitArchived(17, 10*time.Second)
	stop()
	if room := s.roomOf("default"); len(room) > 0 {
		t.Errorf("the process has gone, and still listed: %q", room)
	}
}

// cutOff is a connection that is lost when a task is about to park.
type cutOff struct {
	redis.UniversalClient
	lost atomic.Bool
}

func (c *cutOff) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if parksBy(keys) {
		c.lost.Store(true)
	}
	if c.lost.Load() {
		return redis.NewCmdResult(nil, io.ErrUnexpectedEOF)
	}
	return c.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

// ZAddXX is how asynq extends leases.
func (c *cutOff) ZAddXX(ctx context.Context, key string, members ...redis.Z) *redis.IntCmd {
	if c.lost.Load() {
		return redis.NewIntResult(0, io.ErrUnexpectedEOF)
	}
	return c.UniversalClient.ZAddXX(ctx, key, members...)
}

// TestPutOffThenRecoveredElsewhere: a limit puts off a task that has only one attempt, and its
// process cannot park it. Another process finds its lease lapsed, as if the first had died
// meanwhile. The task has not begun, and goes on.
func TestPutOffThenRecoveredElsewhere(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	first := &cutOff{UniversalClient: s.rdb}
	s.serve(member{name: "cut off", yaml: fiftyPerSecond, rdb: first, asynq: asynq.Config{ShutdownTimeout: time.Second}})
	for i := range 5 { // the limit gives these permits at once
		s.enqueue("x:limited", fmt.Sprint("before", i))
	}
	s.awaitStarts("before", 5, 10*time.Second)
	goOn := s.stopLimit("api", "50/1s")
	s.enqueue("x:limited", "nightly", asynq.MaxRetry(0))
	s.await(5*time.Second, func() (bool, string) { return first.lost.Load(), "not put off" })
	s.rdb.ZAdd(t.Context(), "asynq:{default}:lease", redis.Z{Member: "nightly", Score: float64(time.Now().Add(-time.Hour).Unix())})
	s.serve(member{name: "other", yaml: fiftyPerSecond})
	s.await(10*time.Second, func() (bool, string) {
		q := s.queue("default")
		return q.Retry == 1 && q.Active == 0, fmt.Sprintf("%+v", q)
	})
	goOn()
	s.awaitStarts("nightly", 1, 10*time.Second)
	s.awaitDone("default", 10*time.Second)
}

// TestWaitingTasksMoveUp: a task that waits in its process for permits that are due later starts when others are given back.
func TestWaitingTasksMoveUp(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	const tasks = 20
	s.serve(member{yaml: fmt.Sprintf(`
limits: { api: { rate: %d/20s } }
jobs: { "x:": { limits: [api], hold: 1m } }
`, tasks), asynq: asynq.Config{Concurrency: 5}})
	for i := range tasks {
		s.enqueue("x:first", fmt.Sprintf("first%02d", i))
	}
	s.awaitStarts("first", tasks, 5*time.Second)
	s.enqueue("x:next", "next")
	s.await(5*time.Second, func() (bool, string) {
		used, err := operate.NewFleet(s.rdb).Inspect(t.Context(), "api")
		room := s.roomOf("default")
		return len(used) == 1 && used[0].Reserved == 1 && len(room) == 1, fmt.Sprintf("%+v, %v; %v wait in the room", used, err, room)
	})
	if err := s.limiter("api").Release(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	s.awaitStarts("next", 1, 5*time.Second)
}
