//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/check"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/fault"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/judge"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/record"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/site"
	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
	"github.com/jobthrottle/jobthrottle/internal/operator"
)

const (
	// backlog is how many jobs there are at least to do while somebody acts on them.
	backlog = 500
	// patience is how long after the last fault the last job may end: a killed worker's lease lapses,
	// asynq's recoverer finds the job, and the job waits for its next attempt.
	patience = 6 * time.Minute
)

// hand is an operator beside the faults of a site. It also enqueues the jobs.
type hand struct {
	*operator.Operator
	site   *site.Site
	client *asynq.Client
	asynq  *asynq.Inspector
	rand   *rand.Rand
	jobs   int
}

// operated is one run in which an operator acts on jobs at random, beside the faults. It ends when
// all jobs have ended. It lists the jobs that ran again, and returns an error if a promise was broken.
func operated(ctx context.Context, programs site.Programs, seed uint64, slots []fault.Slot, length time.Duration, dir string, out io.Writer) (err error) {
	s, stop, err := open(ctx, programs, mix, dir, 0)
	if err != nil {
		return err
	}
	run := check.Run{Limit: mix.Limit, Begin: record.Now()}
	rdb := redis.NewClient(&redis.Options{Addr: s.Redis.Addr, MaxRetries: -1, ReadTimeout: time.Second})
	h := &hand{site: s, client: asynq.NewClientFromRedisClient(rdb), asynq: asynq.NewInspectorFromRedisClient(rdb), rand: rand.New(rand.NewPCG(seed, 2))}
	h.Operator = operator.New(operator.Options{
		Inspector: h.asynq, Redis: rdb, Queues: []string{site.Queue}, Rand: h.rand, Now: record.Now,
		Failed: func(*asynq.TaskInfo) bool { return false }, // jobs have many attempts
	})
	left, err := h.work(ctx, slots, length, &run)
	run.Levels = s.Levels()
	run.Enqueued = h.Jobs()
	if err = errors.Join(err, stop(&run), rdb.Close()); err != nil {
		return err
	}
	return errors.Join(left, h.verdict(run, out))
}

// work starts the workers, and stops them when all is done. Left is an error if a job is lost, stuck,
// or in a state that nobody gave it.
func (h *hand) work(ctx context.Context, slots []fault.Slot, length time.Duration, run *check.Run) (left, err error) {
	if err := h.site.StartWorkers(); err != nil {
		return nil, err
	}
	var g errgroup.Group
	over := make(chan struct{})
	g.Go(func() error {
		defer close(over)
		return trouble(ctx, h.site, slots, length, run)
	})
	g.Go(func() error { return h.act(ctx, over) })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err := errors.Join(h.Settle(ctx), h.await(ctx), h.site.StopWorkers()); err != nil {
		return nil, err
	}
	return h.Left(ctx), nil
}

// act acts on jobs until it is over.
func (h *hand) act(ctx context.Context, over <-chan struct{}) error {
	for round := 0; ; round++ {
		select {
		case <-over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		if err := h.top(ctx); err != nil {
			return err
		}
		for range 5 {
			if err := h.One(ctx); err != nil {
				return err
			}
		}
		if round%10 == 0 {
			if err := h.Many(ctx); err != nil {
				return err
			}
		}
	}
}

// top adds jobs if there are few. Some are scheduled, some take their time, and some are refused once.
func (h *hand) top(ctx context.Context) error {
	if h.jobs > 0 { // otherwise there is no queue yet
		q, err := h.asynq.GetQueueInfo(site.Queue)
		if err != nil || q.Pending+q.Retry+q.Scheduled >= backlog || q.Archived >= operator.Most {
			return nil // an error: Redis is away
		}
	}
	for range 100 {
		id := fmt.Sprintf("job-%d", h.jobs)
		h.jobs++
		parameters := url.Values{"job": {id}}
		if h.rand.IntN(5) == 0 {
			parameters.Set(judge.Takes, (time.Duration(h.rand.IntN(2000)) * time.Millisecond).String())
		}
		if h.rand.IntN(50) == 0 {
			parameters.Set(judge.Refuse, "1")
		}
		opts := []asynq.Option{asynq.TaskID(id), asynq.Queue(site.Queue), asynq.Retention(24 * time.Hour)}
		due := time.Duration(0)
		if h.rand.IntN(10) == 0 {
			in := time.Duration(1+h.rand.IntN(10)) * time.Second
			at := time.Now().Add(in).Truncate(time.Second) // asynq keeps whole seconds
			due = record.Now() + time.Until(at)
			opts = append(opts, asynq.ProcessAt(at))
		}
		h.Add(id, site.Queue, due)
		for {
			_, err := h.client.Enqueue(h.site.Task(parameters), opts...)
			if err == nil || errors.Is(err, asynq.ErrTaskIDConflict) { // it was added, and the reply was lost
				break
			}
			if fleet.Sleep(ctx, 50*time.Millisecond) != nil {
				return errors.Join(err, ctx.Err())
			}
		}
	}
	return nil
}

// await waits until no job is left to do, or patience ends. A worker whose clock is an hour fast puts
// its failed jobs off by an hour more: the operator runs them.
func (h *hand) await(ctx context.Context) error {
	for end := record.Now() + patience; record.Now() < end; {
		q, err := h.asynq.GetQueueInfo(site.Queue)
		if err != nil {
			return err
		}
		if q.Pending+q.Active+q.Retry+q.Scheduled == 0 {
			return nil
		}
		tasks, err := h.asynq.ListRetryTasks(site.Queue, asynq.PageSize(backlog))
		if err != nil {
			return err
		}
		for _, task := range tasks {
			if in := time.Until(task.NextProcessAt); in > 30*time.Minute && in < 2*time.Hour {
				if err := h.Run(ctx, task.ID); err != nil {
					return err
				}
			}
		}
		if err := fleet.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}

// verdict lists the jobs that ran again, and judges the run.
func (h *hand) verdict(run check.Run, out io.Writer) error {
	var starts []operator.Start
	for _, a := range run.Arrivals {
		starts = append(starts, operator.Start{Job: a.Job, At: a.At, Done: a.Status == http.StatusOK})
	}
	again, err := h.Judge(starts, causes(run, h.Cancelled()))
	whys := map[string]int{}
	for _, a := range again {
		if whys[a.Why]++; a.Why != operator.Ran {
			fmt.Fprintf(out, "%s again after %.2f s: %s\n", a.Job, (a.At - run.Begin).Seconds(), a.Why)
		}
	}
	fmt.Fprintf(out, "%v\n%d starts, %d of them again: %v\n", h.Operator, len(starts), len(again), whys)
	if w := check.Check(run).Busiest; w.Above > 0 {
		err = errors.Join(err, fmt.Errorf("%d arrivals in one interval, the limit was %d", w.Arrivals, w.Limit))
	}
	return err
}
