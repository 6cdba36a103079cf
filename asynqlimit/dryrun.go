package asynqlimit

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/plan"
)

// dryRuns ask limits with dry_run, and report which jobs those would make wait. The jobs do not
// wait for the answers.
type dryRuns struct {
	p     *process
	asked sync.WaitGroup

	mu     sync.Mutex
	asking int
	closed bool
}

const (
	// maxDryRuns is how many jobs may ask at a time. Further jobs do not ask: Redis is away, or
	// too slow for them.
	maxDryRuns = 10_000
	// dryRunLasts is the time limit of one question.
	dryRunLasts = 5 * time.Second
)

// dryRun asks the limits with dry_run for the permits of what the job is about to do.
func (j *job) dryRun() {
	if len(j.needs.dry) > 0 {
		j.l.dryRuns.ask(func(ctx context.Context) {
			for _, draw := range j.needs.dry {
				j.l.dryRuns.draw(ctx, draw, j.task.Type(), j.a.id)
			}
		})
	}
}

// ask asks a question beside the job that it is about.
func (d *dryRuns) ask(question func(context.Context)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.asking >= maxDryRuns {
		return
	}
	d.asking++
	d.asked.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dryRunLasts)
		defer cancel()
		question(ctx)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.asking--
	})
}

// draw takes the permits if they are there, and reports it if they are not.
func (d *dryRuns) draw(ctx context.Context, draw plan.Draw, taskType, id string) {
	counts, wait, err := &d.p.rules.limits[draw.Limit].counts, time.Duration(0), draw.Mistake
	if err == nil {
		wait, err = d.take(ctx, draw)
		switch {
		case err == nil && wait == 0:
			counts.granted.Add(draw.Cost)
			return
		case err != nil && blockedByLimit(err) == nil:
			return // Redis has not decided
		}
	}
	counts.wouldWait.Add(1)
	because := slog.Any("error", err)
	if err == nil {
		because = slog.Duration("wait", wait.Round(time.Millisecond))
	}
	d.report(draw.Limit.Name, draw.Limiter, taskType, id, because)
}

// report tells that jobs would wait, once a minute for each limit.
func (d *dryRuns) report(limit, limiter, taskType, id string, because slog.Attr) {
	if jobs := d.p.reports.add(time.Now(), "dry run of "+limit); jobs > 0 {
		d.p.logger.Info("jobs would wait for a limit without dry_run", "limit", limit, "limiter", limiter, "jobs", jobs,
			"type", taskType, "task_id", id, because)
	}
}

// take takes the permits of a draw, or returns how long the job would wait for them.
func (d *dryRuns) take(ctx context.Context, draw plan.Draw) (wait time.Duration, err error) {
	limiter, err := d.p.throttle.LimiterWithRate(draw.Limiter, draw.Rate)
	if err != nil {
		return 0, err
	}
	if draw.Limit.Key != "" && !d.p.applied.has(draw.Limiter) {
		if _, err := limiter.ApplyRate(ctx, draw.Rate); err != nil {
			return 0, err
		}
		d.p.applied.add(draw.Limiter)
	}
	r, err := limiter.Reserve(ctx, draw.Cost, 0)
	if err != nil {
		return 0, err
	}
	if !r.OK() {
		return max(r.Delay(), 1), nil
	}
	return 0, nil // the permits count as used: the reservation is neither waited for nor cancelled
}

// dryLine reports whether a line is for a limit of the configuration that has dry_run.
func (rs *rules) dryLine(name string) bool {
	if line.IsBlocked(name) {
		return false
	}
	limiter, _, _ := line.Split(name)
	limit := rs.limitOf(limiter)
	return limit != nil && limit.Dry
}

// dryLines returns visits of lines for limits with dry_run. Their tasks parked before the limit had it, or a process with another
// configuration parks them. This process calls as many as it has capacity for, of each line about the same number. It visits the
// lines whether they are due or not, because they are due when that process gets permits. If it leaves out tasks, it notes the
// queue in short.
func (c *caller) dryLines(due []line.Due, capacity int, short map[string]bool) (visits []*visit) {
	rest := int64(max(capacity-c.l.gate.toCome(), 0))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, d := range due {
		for name, tasks := range d.Known {
			if !d.Paused && c.l.rules.dryLine(name) {
				cost := max(c.lineup(d.Queue).lines[name].cost, 1)
				visits = append(visits, &visit{queue: i, name: name, tasks: tasks, cost: cost, opened: true, also: true, next: soonest})
			}
		}
	}
	each := max(rest/int64(max(len(visits), 1)), 1)
	return slices.DeleteFunc(visits, func(k *visit) bool {
		if k.tasks < 0 { // that was not asked
			k.tasks = unmeasured
		}
		k.capacity = min(k.tasks, each, rest)
		k.permits, k.short = k.capacity*k.cost, k.tasks > k.capacity
		if rest -= k.capacity; k.short && k.capacity == 0 {
			short[due[k.queue].Queue] = true
			return true
		}
		return false // a line without tasks is removed
	})
}

// close waits until all questions are answered.
func (d *dryRuns) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.asked.Wait()
}
