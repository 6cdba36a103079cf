package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/operator"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// operated is a fleet on whose jobs somebody acts at random.
type operated struct {
	*operator.Operator
	s        *site
	enqueued int
	began    time.Time

	mu       sync.Mutex
	ran      map[string]bool  // to its end
	failures []operator.Cause // that a server's error handler saw
}

func (o *operated) now() time.Duration { return time.Since(o.began) }

// handle fails if somebody cancels the job. Now and then it lasts long enough for that.
func (o *operated) handle(ctx context.Context, _ *asynq.Task) error {
	id, _ := asynq.GetTaskID(ctx)
	if rand.IntN(20) == 0 {
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ran[id] = o.ran[id] || ctx.Err() == nil
	return ctx.Err()
}

// HandleError notes that a job failed.
func (o *operated) HandleError(ctx context.Context, _ *asynq.Task, _ error) {
	id, _ := asynq.GetTaskID(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failures = append(o.failures, operator.Cause{Job: id, At: o.now(), Why: "it failed"})
}

// failed reports whether a job that is archived was cancelled while its handler ran.
func (o *operated) failed(info *asynq.TaskInfo) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return info.LastErr == context.Canceled.Error() && slices.ContainsFunc(o.failures, func(c operator.Cause) bool { return c.Job == info.ID })
}

// enqueue adds a job. One in ten is scheduled.
func (o *operated) enqueue() {
	o.s.t.Helper()
	id, queue, due := fmt.Sprint("job", o.enqueued), o.Queues[o.enqueued%2], time.Duration(0)
	opts := []asynq.Option{asynq.Queue(queue), asynq.MaxRetry(rand.IntN(2)), asynq.Retention(time.Hour)}
	if rand.IntN(10) == 0 {
		in := time.Second + rand.N(2*time.Second)
		if nightly() {
			in = 10*time.Second + rand.N(50*time.Second)
		}
		at := time.Now().Add(in).Truncate(time.Second) // asynq keeps whole seconds
		due = at.Sub(o.began)
		opts = append(opts, asynq.ProcessAt(at))
	}
	o.s.enqueuePayload("x:job", id, fmt.Appendf(nil, `{"account": %d}`, rand.IntN(5)), opts...)
	o.Add(id, queue, due)
	o.enqueued++
}

// TestOperatorsAtRandom: while a fleet works off a backlog, somebody runs, archives, deletes and
// cancels jobs, pauses queues, and runs or archives everything that waits. No job is lost or stuck: each job
// that was not deleted ends, and what was archived by hand is in the archive. No job starts a second time without a
// cause, and no scheduled job starts too early.
func TestOperatorsAtRandom(t *testing.T) {
	t.Parallel()
	lasts := 8 * time.Second
	if nightly() {
		lasts = 30 * time.Minute
	}
	s := newSite(t, redistest.Start(t))
	const yaml = `
limits: { api: { rate: 100/1s }, account: { rate: 20/1s, key: payload.account } }
jobs: { "x:": { limits: [api, account] }, "y:blocked": { limits: [account] } }
`
	o := &operated{s: s, began: time.Now(), ran: map[string]bool{}}
	seed := rand.Uint64()
	o.Operator = operator.New(operator.Options{
		Inspector: s.inspector, Redis: s.rdb, Queues: []string{"a", "b :%é"}, Rand: rand.New(rand.NewPCG(seed, 0)), Now: o.now, Failed: o.failed,
	})
	m := member{yaml: yaml, asynq: asynq.Config{
		Concurrency: 5, Queues: map[string]int{o.Queues[0]: 3, o.Queues[1]: 1}, DelayedTaskCheckInterval: time.Second, RetryDelayFunc: quickly,
		ErrorHandler: o,
	}, handle: o.handle}
	for range 3 {
		s.serve(m)
	}
	checked, full := time.Now(), false
	for o.now() < lasts {
		if time.Since(checked) > 300*time.Millisecond {
			checked, full = time.Now(), false
			for _, queue := range o.Queues {
				q := s.queue(queue)
				full = full || q.Pending+q.Retry+q.Scheduled > 2000 // the limit gives 100 a second: later there have to be few enough
			}
			if err := o.Many(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			if !full {
				o.enqueue()
			}
		}
		for range 20 {
			if err := o.One(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-s.more:
		case <-time.After(50 * time.Millisecond):
		}
	}
	if err := o.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.await(2*time.Minute, func() (bool, string) {
		left, state := 0, ""
		for _, queue := range o.Queues {
			q := s.queue(queue)
			left += q.Pending + q.Active + q.Retry + q.Scheduled
			state += fmt.Sprintf("%+v\n", q)
		}
		return left == 0, state
	})
	o.mu.Lock()
	failures, ran := o.failures, o.ran
	o.mu.Unlock()
	var starts []operator.Start
	for _, st := range s.seen("") {
		starts = append(starts, operator.Start{Job: st.id, At: st.at.Sub(o.began), Done: ran[st.id]})
	}
	left := o.Left(t.Context())
	again, err := o.Judge(starts, failures)
	if err := errors.Join(left, err); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	t.Logf("%v; %d starts, %d of them again", o, len(starts), len(again))
	if most := busiest(s.seen(""), 950*time.Millisecond); most > 100 {
		t.Errorf("%d starts within 950ms, want at most 100", most)
	}
	for _, queue := range o.Queues {
		s.await(15*time.Second, func() (bool, string) {
			keys := s.keysLeft(queue)
			return len(keys) == 0, fmt.Sprintf("keys left: %q", keys)
		})
	}
}
