package asynqlimit_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// TestMoreLinesThanKnown: a queue has more lines than a process knows about at a time. The jobs
// of each line are called when they are due.
func TestMoreLinesThanKnown(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	s.serve(member{yaml: `
limits: { account: { rate: 1/5s, key: payload.account } }
jobs: { "x:account": { limits: [account], hold: 100ms } }
`, asynq: asynq.Config{Concurrency: 100}})
	const accounts = 1500
	for _, round := range []string{"first", "second"} {
		for i := range accounts {
			s.enqueuePayload("x:account", fmt.Sprint(round, i), fmt.Appendf(nil, `{"account": "%d"}`, i))
		}
	}
	s.awaitStarts("first", accounts, 20*time.Second)
	starts := s.awaitStarts("second", accounts, 30*time.Second)
	t.Logf("the last started %v after the first", starts[accounts-1].at.Sub(s.seen("first")[0].at))
	s.awaitDone("default", 10*time.Second)
}

// TestBacklogsOfAccounts: each account has a limit of its own, and the backlog of one account was
// enqueued after that of the other. No account waits until those before it have used up their limits:
// the backlogs go into their lines, and the lines share the slots.
func TestBacklogsOfAccounts(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	const accounts, limit, each = 20, 50, 100
	for a := range accounts {
		for i := range each {
			s.enqueuePayload("x:account", fmt.Sprintf("a%02d-%03d", a, i), fmt.Appendf(nil, `{"account": "%d"}`, a))
		}
	}
	s.serve(member{yaml: fmt.Sprintf(`
limits: { account: { rate: %d/1h, key: payload.account } }
jobs: { "x:account": { limits: [account] } }
`, limit), asynq: asynq.Config{Concurrency: 10}, handle: func(context.Context, *asynq.Task) error {
		<-time.After(100 * time.Millisecond)
		return nil
	}})
	s.awaitStarts(fmt.Sprintf("a%02d", accounts-1), 1, 3*time.Second) // 10 s pass until the slots have done what the limits let through
	for a := range accounts {
		starts := s.awaitStarts(fmt.Sprintf("a%02d", a), limit, 20*time.Second)
		if a == 0 {
			continue // its first ones were alone
		}
		checkOrder(t, starts)
	}
}

// TestBacklogOfANewAccount: the jobs of an account are in line before its limiter is in Redis. They are
// called all the same, whatever they cost and however the limit gives its permits.
func TestBacklogOfANewAccount(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	for _, account := range []string{"first", "second"} {
		for i := range 200 {
			s.enqueuePayload("x:account", fmt.Sprintf("%s%03d", account, i), fmt.Appendf(nil, `{"account": %q}`, account))
		}
	}
	s.serve(member{yaml: `
limits: { tokens: { rate: 100/1s, key: payload.account, smooth: true } }
jobs: { "x:account": { limits: [tokens], permits: 5 } }
`, asynq: asynq.Config{Concurrency: 20}})
	s.awaitStarts("second", 20, 4*time.Second) // a second, once they are in line
}

// TestSpoiltKeysHoldUpNoOthers: somebody has written something into keys of limiters, or of a
// queue, that makes no sense there. Other jobs go on.
func TestSpoiltKeysHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	const accounts, good = 5, 160
	each := func(spoil func(s *site, limiter string)) func(*site) {
		return func(s *site) {
			for i := range accounts {
				spoil(s, fmt.Sprint("account:evil", i))
			}
		}
	}
	for name, spoil := range map[string]func(*site){
		"rates":    each(func(s *site, limiter string) { s.rdb.HSet(s.t.Context(), limiter, "rate", "-3") }),
		"limiters": each(func(s *site, limiter string) { s.rdb.Set(s.t.Context(), limiter, "x", 0) }),
		"sharing":  each(func(s *site, limiter string) { s.rdb.Set(s.t.Context(), "{"+limiter+"}:queues", "x", 0) }),
		"queue":    func(s *site) { s.rdb.Set(s.t.Context(), "asynq:{evil}:jt:lines", "x", 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			var log testkit.Buffer
			s.serve(member{yaml: `
limits: { api: { rate: 20/1s }, account: { rate: 1/1h, key: payload.account } }
jobs: { "x:limited": { limits: [api], hold: 100ms }, "y:account": { limits: [account], hold: 100ms } }
`, opts: asynqlimit.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, asynq: asynq.Config{Queues: map[string]int{"default": 1, "evil": 1}}})
			for i := range 2 * accounts {
				s.enqueuePayload("y:account", fmt.Sprint("evil", i), fmt.Appendf(nil, `{"account": "evil%d"}`, i%accounts), asynq.Queue("evil"))
			}
			s.awaitStarts("evil", accounts, 5*time.Second)
			s.awaitWaiting("evil", accounts)
			spoil(s)
			for i := range good {
				s.enqueue("x:limited", fmt.Sprint("good", i))
			}
			starts := s.awaitStarts("good", good, 15*time.Second) // 7 s if nothing is in their way
			t.Logf("%v", starts[good-1].at.Sub(starts[0].at))
			text, broken := log.String(), name == "rates" || name == "limiters"
			if strings.Contains(text, "Redis is away") || strings.Contains(text, "limits are broken") != broken {
				t.Errorf("the log says:\n%s", text)
			}
		})
	}
}

// TestSpoiltTaskHoldsUpNoOthers: somebody has written something under the key of the first job in line. The
// other jobs of its line, and of other lines of its queue, go on.
func TestSpoiltTaskHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ share, line string }{
		"line":    {"", "a"},
		"tenants": {", share: payload.tenant", "a\tevil"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			goOn, goOnToo := s.stopLimit("a", "1000/1s"), s.stopLimit("b", "1000/1s")
			const each = 5
			for i := range each {
				s.enqueuePayload("x:a", fmt.Sprint("evil", i), []byte(`{"tenant": "evil"}`), asynq.Queue("evil"))
				s.enqueuePayload("x:a", fmt.Sprint("good", i), []byte(`{"tenant": "good"}`), asynq.Queue("evil"))
				s.enqueue("y:b", fmt.Sprint("other", i), asynq.Queue("evil"))
			}
			s.serve(member{yaml: `
limits: { a: { rate: 1000/1s` + tt.share + ` }, b: { rate: 1000/1s } }
jobs: { "x:a": { limits: [a], hold: 0 }, "y:b": { limits: [b], hold: 0 } }
`, asynq: asynq.Config{Queues: map[string]int{"evil": 1}}})
			s.awaitWaiting("evil", 3*each)
			head := s.rdb.ZRange(t.Context(), "asynq:{evil}:jt:line:"+tt.line, 0, 0).Val()
			if len(head) == 0 {
				t.Fatal("no job is in line")
			}
			if err := s.rdb.Set(t.Context(), line.TaskKey("evil", head[0]), "x", 0).Err(); err != nil {
				t.Fatal(err)
			}
			goOn()
			goOnToo()
			s.awaitStarts("other", each, 5*time.Second)
			s.awaitStarts("", 3*each-1, 5*time.Second)
		})
	}
}

// TestInFlightInOrder: jobs that wait for max_in_flight run in the order in which they came, and
// only jobs that can run are called.
func TestInFlightInOrder(t *testing.T) {
	t.Parallel()
	for _, capacity := range []int{1, 3} {
		t.Run(fmt.Sprint(capacity), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			const jobs = 30
			for i := range jobs {
				s.enqueue("x:limited", fmt.Sprintf("x%02d", i))
			}
			var attempts atomic.Int64
			s.serve(member{yaml: fmt.Sprintf(`
limits: { api: { rate: 1000/1s } }
jobs: { "x:limited": { limits: [api], max_in_flight: %d, hold: 100ms } }
`, capacity), opts: asynqlimit.Options{Attempt: func(next asynq.Handler) asynq.Handler {
				return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
					attempts.Add(1)
					return next.ProcessTask(ctx, task)
				})
			}}, handle: func(context.Context, *asynq.Task) error {
				<-time.After(200 * time.Millisecond)
				return nil
			}})
			starts := s.awaitStarts("x", jobs, 30*time.Second)
			for i, st := range starts {
				var n int
				if _, err := fmt.Sscanf(st.id, "x%d", &n); err != nil || n > i+5 || n < i-5 {
					t.Errorf("start %d is that of %s", i, st.id)
				}
			}
			checkOrder(t, starts)
			if n := attempts.Load(); n > 3*jobs {
				t.Errorf("%d jobs had %d attempts", jobs, n)
			}
		})
	}
}

// TestLeftoverCallsNobody: a limit has fewer permits left than a job costs, or none. No job is
// called until there are enough permits for a whole one.
func TestLeftoverCallsNobody(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]string{
		"leftover":   "api: { rate: 10/20s }",
		"per client": "api: { rate: 10/20s, type: per_client }",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			var attempts atomic.Int64
			s.serve(member{yaml: `
limits: { ` + limits + ` }
jobs: { "x:limited": { limits: [api], permits: 4, hold: 0 } }
`, opts: asynqlimit.Options{Attempt: func(next asynq.Handler) asynq.Handler {
				return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
					attempts.Add(1)
					return next.ProcessTask(ctx, task)
				})
			}}})
			const jobs = 20
			for i := range jobs {
				s.enqueue("x:limited", fmt.Sprint("x", i))
			}
			s.awaitStarts("x", 1, 5*time.Second)
			s.await(10*time.Second, func() (bool, string) {
				q := s.queue("default")
				return q.Retry+len(s.seen("x")) == jobs && q.Pending+q.Active == 0, fmt.Sprintf("%+v", q)
			})
			before, begun := attempts.Load(), len(s.seen("x"))
			<-time.After(8 * time.Second)
			n := attempts.Load() - before - 2*int64(len(s.seen("x"))-begun)
			t.Logf("%d attempts, %d started", n, len(s.seen("x")))
			if n > 10 {
				t.Errorf("%d attempts in 8 s with nothing to get", n)
			}
		})
	}
}

// TestWholeLimitEach: each job takes all that a limit gives at once, and so does each job of
// another queue. Both queues go on.
func TestWholeLimitEach(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	for i := range 6 {
		for _, queue := range []string{"a", "b"} {
			s.enqueue("x:limited", fmt.Sprint(queue, i), asynq.Queue(queue))
		}
	}
	s.serve(member{yaml: `
limits: { api: { rate: 4/500ms } }
jobs: { "x:limited": { limits: [api], permits: 4, hold: 0 } }
`, asynq: asynq.Config{Queues: map[string]int{"a": 1, "b": 1}}})
	starts := s.awaitStarts("", 12, 20*time.Second)
	t.Logf("12 jobs, one at a time, took %v", starts[11].at.Sub(starts[0].at))
	s.awaitDone("a", 5*time.Second)
	s.awaitDone("b", 5*time.Second)
}

// TestDifferentCostsEach: the jobs of one queue cost more than those of another, and more than is left once those of the other
// are called. Both queues go on, also if the limit was lowered below the cost of a job that is in line.
func TestDifferentCostsEach(t *testing.T) {
	t.Parallel()
	fixed := throttle.Rate{Permits: 10, Interval: 250 * time.Millisecond}
	for name, tt := range map[string]struct {
		rate     throttle.Rate
		a, b     int // permits of a job
		tooLarge int // permits of another job of b; 0: there is none
	}{
		"at once":         {fixed, 6, 8, 0},
		"smooth":          {throttle.Rate{Permits: 9000, Interval: time.Second, Smooth: true}, 500, 3000, 0},
		"above the limit": {fixed, 3, 8, 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			goOn := s.stopLimit("api", "9000/1s")
			s.serve(member{yaml: `
limits: { api: { rate: 9000/1s } }
jobs: { "x:limited": { limits: [api], permits: payload.cost, hold: 0 } }
`, asynq: asynq.Config{Queues: map[string]int{"a": 1, "b": 1}}})
			const each = 5
			job := func(queue string, i, cost int) {
				s.enqueuePayload("x:limited", fmt.Sprint(queue, i), fmt.Appendf(nil, `{"cost": %d}`, cost), asynq.Queue(queue))
			}
			inB := each
			for i := range each {
				job("a", i, tt.a)
				job("b", i, tt.b)
				if i == 1 && tt.tooLarge > 0 {
					job("b", -1, tt.tooLarge)
					inB++
				}
			}
			s.awaitWaiting("a", each)
			s.awaitWaiting("b", inB)
			if err := s.limiter("api").SetRate(t.Context(), tt.rate); err != nil {
				t.Fatal(err)
			}
			goOn()
			began := time.Now()
			s.awaitStarts("a", each, 8*time.Second) // 3 s by the limit, for all
			s.awaitStarts("b", each, 8*time.Second)
			t.Logf("%v", time.Since(began))
		})
	}
}

// TestBacklogOfLargeJobs: the backlog of an account goes into its line, although its jobs are so large that
// one call reads no more of them than the limit lets through. Jobs that came after it do not wait until then.
func TestBacklogOfLargeJobs(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	text, end := strings.Repeat("x", 50<<10), make(chan struct{})
	defer close(end)
	for _, a := range []struct {
		account string
		jobs    int
	}{{"first", 60}, {"large", 60}, {"last", 1}} {
		for i := range a.jobs {
			s.enqueuePayload("x:account", fmt.Sprint(a.account, i), fmt.Appendf(nil, `{"account": %q, "text": %q}`, a.account, text))
		}
	}
	s.serve(member{yaml: `
limits: { account: { rate: 25/1h, key: payload.account } }
jobs: { "x:account": { limits: [account] } }
`, asynq: asynq.Config{Concurrency: 10}, handle: func(ctx context.Context, _ *asynq.Task) error {
		if id, _ := asynq.GetTaskID(ctx); strings.HasPrefix(id, "large") {
			select {
			case <-end:
			case <-ctx.Done():
			}
		}
		return nil
	}})
	s.await(10*time.Second, func() (bool, string) {
		q := s.queue("default")
		return q.Pending == 0 && len(s.seen("large")) > 0, fmt.Sprintf("%+v", q)
	})
}
