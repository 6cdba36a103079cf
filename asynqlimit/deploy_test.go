package asynqlimit_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// hook is between a program and its Redis: do handles each command. A pipeline counts as its first command.
type hook struct {
	do func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error
}

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h.do(ctx, cmd, next) }
}
func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		sent := false
		err := h.do(ctx, cmds[0], func(ctx context.Context, _ redis.Cmder) error {
			sent = true
			return next(ctx, cmds)
		})
		for _, cmd := range cmds {
			if !sent && err != nil { // else each has its own
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// hooked returns a Redis client with a hook.
func (s *site) hooked(do func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error) *redis.Client {
	rdb := redis.NewClient(s.rdb.Options())
	s.t.Cleanup(func() { rdb.Close() })
	rdb.AddHook(hook{do})
	return rdb
}

// TestOrderWithinABatch: tasks that one call has taken keep the order of their queue in their
// line, whatever their ids.
func TestOrderWithinABatch(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	const jobs = 40
	for i := range jobs {
		s.enqueue("x:limited", fmt.Sprintf("x%02d", jobs-i))
	}
	s.serve(member{yaml: `
limits: { api: { rate: 4/1s } }
jobs: { "x:limited": { limits: [api], hold: 0 } }
`, asynq: asynq.Config{Concurrency: 128}})
	starts := s.awaitStarts("x", jobs, 30*time.Second)
	for i := range starts { // rename them by their arrival
		var n int
		if _, err := fmt.Sscanf(starts[i].id, "x%d", &n); err != nil {
			t.Fatal(err)
		}
		starts[i].id = fmt.Sprintf("%02d", jobs-n)
	}
	checkOrder(t, starts)
}

// TestOrderAcrossADeploy: jobs that wait in a process that drains go to the head of their queue,
// in the order in which they came, before the jobs that the process had not taken.
func TestOrderAcrossADeploy(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	m := member{name: "one", yaml: `
limits: { api: { rate: 5/1s } }
jobs: { "x:limited": { limits: [api], hold: 30s } }
`, asynq: asynq.Config{Concurrency: 20}, opts: asynqlimit.Options{MaxWaiting: 80}} // 40 wait here, however fast they are taken
	for i := range 60 {
		s.enqueue("x:limited", fmt.Sprintf("x%02d", i), asynq.Retention(time.Hour))
	}
	stop := s.serve(m)
	s.awaitStarts("x", 8, 10*time.Second)
	stop()
	ids := s.rdb.LRange(t.Context(), "asynq:{default}:pending", 0, -1).Val()
	slices.Reverse(ids)
	if !slices.IsSorted(ids) || len(ids) < 20 {
		t.Errorf("in the queue, from its head: %q", ids)
	}
	m.name = "two"
	s.serve(m)
	s.awaitDone("default", 30*time.Second)
}

// TestDrainFarFromRedis: when Serve returns, jobs that were taken but not begun are back in their
// queue, however far away Redis is.
func TestDrainFarFromRedis(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	rdb := s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		<-time.After(80 * time.Millisecond) // the way to Redis
		return next(ctx, cmd)
	})
	for i := range 1000 {
		s.enqueue("x:limited", fmt.Sprintf("x%04d", i))
	}
	stop := s.serve(member{rdb: rdb, asynq: asynq.Config{Concurrency: 128}, yaml: `
limits: { api: { rate: 2/1s } }
jobs: { "x:limited": { limits: [api], hold: 100ms } }
`})
	s.await(20*time.Second, func() (bool, string) {
		q := s.queue("default")
		return q.Active > 30 && q.Pending > 200, fmt.Sprintf("%+v", q)
	})
	stop()
	if q := s.queue("default"); q.Active != 0 || q.Size+len(s.seen("x")) != 1000 {
		t.Errorf("%d are active with nobody, and %d of 1000 are there", q.Active, q.Size+len(s.seen("x")))
	}
}

// TestFreshOnesPassNobody: jobs that a process had taken but not begun when it started to drain
// queue behind the jobs in line, as they would have done otherwise.
func TestFreshOnesPassNobody(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	m := member{name: "one", asynq: asynq.Config{Concurrency: 128}, yaml: `
limits: { api: { rate: 4/1s } }
jobs: { "x:limited": { limits: [api], hold: 20s } }
`}
	goOn := s.stopLimit("api", "4/1s")
	for i := range 150 { // more than there is room for, so that some park
		s.enqueue("x:limited", fmt.Sprintf("a%03d", i))
	}
	stop := s.serve(m)
	s.await(10*time.Second, func() (bool, string) { q := s.queue("default"); return q.Pending == 0, fmt.Sprintf("%+v", q) })
	for range 5 {
		enqueued := make(chan struct{})
		go func() {
			defer close(enqueued)
			for i := range 100 {
				s.enqueue("x:limited", fmt.Sprintf("b%d-%03d", time.Now().UnixNano(), i))
			}
		}()
		<-time.After(20 * time.Millisecond)
		stop()
		<-enqueued
		for _, key := range s.rdb.Keys(t.Context(), "asynq:{default}:t:b*").Val() {
			if jt := s.rdb.HGet(t.Context(), key, "jt").Val(); len(jt) > 0 && jt[0] == 'w' {
				t.Errorf("%s counts as next", key)
			}
		}
		stop = s.serve(m)
	}
	goOn()
	if starts := s.awaitStarts("", 40, 30*time.Second); starts[0].id[0] != 'a' {
		t.Errorf("%s started first", starts[0].id)
	}
}
