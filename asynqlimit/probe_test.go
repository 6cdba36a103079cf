package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// mentions counts the commands, sent one by one, that have an argument.
type mentions struct {
	arg string
	n   *atomic.Int64
}

func (m mentions) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m mentions) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if slices.Contains(cmd.Args(), any(m.arg)) {
			m.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (m mentions) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestEmptiedLinesCostNothing: jobs of more types wait for something to be mended than a pass
// reads. Those of one type run, because its cause is mended, and nobody visits their empty line
// any more.
func TestEmptiedLinesCostNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	rdb := redis.NewClient(s.rdb.Options())
	t.Cleanup(func() { rdb.Close() })
	var visits atomic.Int64
	rdb.AddHook(mentions{"!no_credential:x:limited", &visits})
	var mended atomic.Bool
	s.serve(member{yaml: `
limits: { api: { rate: 1000/1s } }
jobs: { "x:limited": { limits: [api] } }
`, rdb: rdb, handle: func(context.Context, *asynq.Task) error {
		if !mended.Load() {
			return asynqlimit.Blocked("no_credential", errors.New("none"))
		}
		return nil
	}})
	const types, jobs = 1600, 40
	for i := range types {
		s.enqueue(fmt.Sprintf("nobody:%d", i), fmt.Sprintf("nobody%d", i))
	}
	for i := range jobs {
		s.enqueue("x:limited", fmt.Sprintf("x%d", i))
	}
	s.await(20*time.Second, func() (bool, string) {
		n := s.rdb.ZCard(t.Context(), "asynq:{default}:jt:line:!no_credential:x:limited").Val()
		return n == jobs, fmt.Sprintf("%d of %d blocked", n, jobs)
	})
	mended.Store(true)
	s.await(60*time.Second, func() (bool, string) {
		n := s.rdb.ZCard(t.Context(), "asynq:{default}:jt:line:!no_credential:x:limited").Val()
		return n == 0, fmt.Sprintf("%d of %d still blocked", n, jobs)
	})
	<-time.After(time.Second) // for what is under way
	before := visits.Load()
	<-time.After(3 * time.Second)
	if n := visits.Load() - before; n > 2 {
		t.Errorf("%d visits in 3 s to a line that is empty", n)
	}
}

// TestMendedAtOnce: a deployment mends what jobs wait for, just after they have parked. They are tried as soon as they can
// be called, and not only when a line that was tried in vain is tried again.
func TestMendedAtOnce(t *testing.T) {
	onEach(t, func(s *site) {
		const yaml = `
limits: { api: { rate: 1000/1s, guard: 500ms } }
jobs: { "x:": { limits: [api] } }
`
		stop := s.serve(member{name: "broken", yaml: yaml, handle: func(context.Context, *asynq.Task) error {
			return asynqlimit.Blocked("no_credential", errors.New("none"))
		}})
		const types = 8
		for i := range types {
			s.enqueue(fmt.Sprint("x:", i), fmt.Sprint("job", i))
		}
		s.awaitBlocked("default", types, "no_credential")
		stop()
		var visited atomic.Pointer[time.Time] // since when the lines are known
		s.serve(member{name: "mended", yaml: yaml, rdb: s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if slices.ContainsFunc(cmd.Args(), func(arg any) bool { text, _ := arg.(string); return strings.HasPrefix(text, "!no_credential:") }) {
				now := time.Now()
				visited.CompareAndSwap(nil, &now)
			}
			return next(ctx, cmd)
		})})
		s.await(30*time.Second, func() (bool, string) {
			n := len(slices.DeleteFunc(s.seen(""), func(st start) bool { return st.server != "mended" }))
			return n == types, fmt.Sprintf("%d of %d started", n, types)
		})
		first := slices.DeleteFunc(s.seen(""), func(st start) bool { return st.server != "mended" })[0]
		if after := first.at.Sub(*visited.Load()); after >= 2*time.Second {
			s.t.Errorf("the first of %d types was tried %v after the first visit", types, after)
		}
	})
}
