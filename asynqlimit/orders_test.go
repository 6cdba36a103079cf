package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// keeping records the ends of the attempts of jobs, by the key whose order they keep.
type keeping struct {
	mu    sync.Mutex
	now   map[string]string   // the job that runs
	done  map[string][]string // ids, in the order in which they succeeded
	tried map[string]bool
	wrong []string
}

func newKeeping() *keeping {
	return &keeping{now: map[string]string{}, done: map[string][]string{}, tried: map[string]bool{}}
}

// run returns a handler of jobs whose ids are KEY-NUMBER. Jobs for which fails is true fail once.
func (k *keeping) run(fails func(id string) bool) func(context.Context, *asynq.Task) error {
	return func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		key, _, _ := strings.Cut(id, "-")
		k.mu.Lock()
		if other := k.now[key]; other != "" {
			k.wrong = append(k.wrong, id+" runs beside "+other)
		}
		if done := k.done[key]; len(done) > 0 && done[len(done)-1] > id {
			k.wrong = append(k.wrong, id+" comes after "+done[len(done)-1])
		}
		k.now[key] = id
		k.mu.Unlock()
		time.Sleep(2 * time.Millisecond) // the work
		k.mu.Lock()
		defer k.mu.Unlock()
		k.now[key] = ""
		again := k.tried[id]
		if k.tried[id] = true; fails(id) && !again {
			return errors.New("the first time it fails")
		}
		k.done[key] = append(k.done[key], id)
		return nil
	}
}

func (k *keeping) check(t *testing.T, keys, each int) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, wrong := range k.wrong {
		if i < 10 {
			t.Error(wrong)
		}
	}
	if len(k.wrong) > 10 {
		t.Errorf("and %d more", len(k.wrong)-10)
	}
	if len(k.done) != keys {
		t.Errorf("jobs of %d keys are done, want %d", len(k.done), keys)
	}
	for key, ids := range k.done {
		if len(ids) != each || !slices.IsSorted(ids) {
			t.Errorf("%s: %d jobs done in the order %v", key, len(ids), ids)
		}
	}
}

// quickly makes asynq retry failed jobs at once.
func quickly(int, error, *asynq.Task) time.Duration { return 0 }

const ordersYAML = `
limits: { customer: { in_flight: 1, key: payload.customer } }
jobs: { x: { limits: [customer] } }
`

// enqueueOrders enqueues jobs of so many keys: for each key the jobs numbered from to to-1.
func (s *site) enqueueOrders(keys, from, to int) {
	for n := from; n < to; n++ {
		for c := range keys {
			s.enqueuePayload("x", fmt.Sprintf("c%02d-%03d", c, n), fmt.Appendf(nil, `{"customer":"c%d"}`, c))
		}
	}
}

// TestOrderOfAKey: in_flight 1 for each of 50 customers with 40 jobs each, a tenth of which fail
// once, on three servers. The jobs of each customer succeed in the order in which they were
// enqueued, and never side by side. A retry keeps the others waiting.
func TestOrderOfAKey(t *testing.T) {
	t.Parallel()
	const keys, each = 50, 40
	s, k := newSite(t, redistest.Start(t)), newKeeping()
	s.enqueueOrders(keys, 0, each)
	handle := k.run(func(id string) bool { return strings.HasSuffix(id, "3") })
	for i := range 3 {
		s.serve(member{name: fmt.Sprint(i), yaml: ordersYAML, asynq: asynq.Config{Concurrency: 20, RetryDelayFunc: quickly, DelayedTaskCheckInterval: 100 * time.Millisecond}, handle: handle})
	}
	began := time.Now()
	s.await(120*time.Second, func() (bool, string) {
		q := s.queue("default")
		return q.Size == 0, fmt.Sprintf("%+v", q)
	})
	t.Logf("%d jobs in %v", keys*each, time.Since(began))
	k.check(t, keys, each)
	s.awaitNothing("default")
}

// awaitEmpty waits until a queue has no tasks.
func (s *site) awaitEmpty(queue string, within time.Duration) {
	s.t.Helper()
	s.await(within, func() (bool, string) {
		q := s.queue(queue)
		return q.Size == 0, fmt.Sprintf("%+v", q)
	})
}

// awaitNothing waits until nothing of ours is left in a queue.
func (s *site) awaitNothing(queue string) {
	s.t.Helper()
	s.await(15*time.Second, func() (bool, string) {
		keys := s.keysLeft(queue)
		keys = slices.DeleteFunc(keys, func(key string) bool { return strings.HasSuffix(key, ":jt:first") }) // one for each queue
		return len(keys) == 0, fmt.Sprintf("keys left: %q", keys)
	})
}

// TestOrderWhereOneIsSlow: a server takes a job and is slow to tell Redis about it. Another
// server has taken the next job of that key, and does not start it before the first.
func TestOrderWhereOneIsSlow(t *testing.T) {
	t.Parallel()
	s, k := newSite(t, redistest.Start(t)), newKeeping()
	var taken sync.Once
	has := make(chan struct{})
	rdb := s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if isOrder(cmd) {
			taken.Do(func() { close(has) })
			select {
			case <-time.After(1500 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return next(ctx, cmd)
	})
	never := func(string) bool { return false }
	s.enqueueOrders(1, 0, 1)
	s.serve(member{name: "slow", rdb: rdb, yaml: ordersYAML, asynq: asynq.Config{Concurrency: 1}, handle: k.run(never)})
	<-has
	s.enqueuePayload("x", "c00-001", []byte(`{"customer":"c0"}`))
	s.enqueuePayload("x", "d00-001", []byte(`{"customer":"d0"}`))
	s.serve(member{name: "quick", yaml: ordersYAML, handle: k.run(never)})
	s.awaitStarts("", 3, 20*time.Second)
	s.awaitEmpty("default", 20*time.Second)
	k.mu.Lock()
	defer k.mu.Unlock()
	if got := k.done["c00"]; !slices.IsSorted(got) || len(got) != 2 || len(k.wrong) > 0 {
		t.Errorf("done in the order %v; %v", got, k.wrong)
	}
	if starts := s.seen(""); starts[0].id != "d00-001" {
		t.Errorf("%s started first: the job of another key waited for the slow server", starts[0].id)
	}
	for _, st := range s.seen("") {
		if (st.id == "c00-000") != (st.server == "slow") {
			t.Errorf("%s ran on %s", st.id, st.server)
		}
	}
}

// TestOrderGoesOn: a job that failed keeps those of its key waiting until it is archived,
// deleted, or done. Jobs of other keys go on. A job that is run again from the archive runs.
func TestOrderGoesOn(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*site) error{
		"archived": func(s *site) error { return s.inspector.ArchiveTask("default", "c00-000") },
		"deleted":  func(s *site) error { return s.inspector.DeleteTask("default", "c00-000") },
		"run":      func(s *site) error { return s.inspector.RunTask("default", "c00-000") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, k := newSite(t, redistest.Start(t)), newKeeping()
			for i := range 2 {
				s.serve(member{name: fmt.Sprint(i), yaml: ordersYAML, asynq: asynq.Config{Concurrency: 4, RetryDelayFunc: hour},
					handle: k.run(func(id string) bool { return id == "c00-000" })})
			}
			s.enqueueOrders(2, 0, 1)
			s.await(10*time.Second, func() (bool, string) {
				q := s.queue("default")
				return q.Retry == 1 && q.Pending+q.Active == 0, fmt.Sprintf("%+v", q)
			})
			s.enqueueOrders(2, 1, 4)
			s.await(10*time.Second, func() (bool, string) {
				n := len(s.seen("c01"))
				return n == 4, fmt.Sprintf("%d of 4 of the other key started", n)
			})
			<-time.After(1500 * time.Millisecond) // longer than it takes until a line is visited
			if n := len(s.seen("c00")); n != 1 {
				t.Fatalf("%d starts of the key whose first job has failed: %v", n, s.seen("c00"))
			}
			if err := end(s); err != nil {
				t.Fatal(err)
			}
			want := map[string]int{"archived": 4, "deleted": 4, "run": 5}[name]
			s.await(10*time.Second, func() (bool, string) {
				n := len(s.seen("c00"))
				return n == want, fmt.Sprintf("%d of %d starts", n, want)
			})
			if name == "archived" {
				if err := s.inspector.RunTask("default", "c00-000"); err != nil {
					t.Fatal(err)
				}
				s.awaitStarts("c00-000", 2, 10*time.Second)
			}
			s.await(10*time.Second, func() (bool, string) {
				q := s.queue("default")
				return q.Size == 0, fmt.Sprintf("%+v", q)
			})
			s.awaitNothing("default")
		})
	}
}
