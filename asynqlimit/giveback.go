package asynqlimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// takes are what a job has taken of one limiter, and when, oldest first.
type takes []take

type take struct {
	permits int64
	at      time.Time
}

func (t *takes) add(n int64, at time.Time) { *t = append(*t, take{n, at}) }

// sum is how many permits the job has of the limiter.
func (t takes) sum() (n int64) {
	for _, of := range t {
		n += of.permits
	}
	return n
}

// drop forgets n permits, the oldest first: those are what a release frees.
func (t *takes) drop(n int64) {
	for n > 0 && len(*t) > 0 {
		first := &(*t)[0]
		x := min(n, first.permits)
		first.permits -= x
		if n -= x; first.permits == 0 {
			*t = (*t)[1:]
		}
	}
}

// counted are those that the limiter still counts at a time, by a clock that was
// set by Redis. Others have expired: to release them would free the permits of other
// jobs, and the limit would give more than its rate.
func (t takes) counted(rate throttle.Rate, now time.Time) (n int64, until time.Time) {
	for _, of := range t {
		ends := of.at.Add(rate.Interval)
		if rate.Window == throttle.Calendar {
			ends = windowEnd(rate, of.at)
		}
		if !now.Before(ends) {
			continue
		}
		if n == 0 {
			until = ends
		}
		n += of.permits
	}
	return n, until
}

// windowEnd is when the calendar window ends that contains t.
func windowEnd(rate throttle.Rate, t time.Time) time.Time {
	since := t.Sub(time.Unix(0, 0).Add(rate.Offset))
	return t.Add(rate.Interval - (since%rate.Interval+rate.Interval)%rate.Interval)
}

// giveBack releases what was taken beyond the cost, as far as the limits still
// count it.
func (j *job) giveBack(ctx context.Context, of []bool, cost int64) error {
	var errs []error
	for i, l := range j.limiter {
		if n := j.taken[i].sum() - cost; of[i] && n > 0 {
			if err := j.giveBackOf(ctx, i, l, n); err != nil {
				errs = append(errs, err)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	return nil
}

// giveBackOf releases n permits of one limit.
func (j *job) giveBackOf(ctx context.Context, i int, l *throttle.Limiter, n int64) error {
	rate := j.rateNow(i)
	var ahead time.Duration // of this process's clock is Redis's
	if rate.Window == throttle.Calendar {
		now, err := j.l.rdb.Time(ctx).Result()
		if err != nil {
			return fmt.Errorf("ask Redis for the time: %w", err)
		}
		ahead = time.Until(now)
	}
	by := make(takes, len(j.taken[i]))
	for k, t := range j.taken[i] {
		by[k] = take{t.permits, t.at.Add(ahead)}
	}
	counted, until := by.counted(rate, time.Now().Add(ahead))
	if back := min(n, counted); back > 0 {
		inTime, cancel := context.WithDeadline(ctx, until.Add(-ahead))
		defer cancel()
		err := l.Release(inTime, back)
		switch {
		case err == nil:
			j.countsOf(i).returned.Add(back)
		case ctx.Err() != nil || inTime.Err() == nil:
			return err
		}
	}
	j.taken[i].drop(n)
	return nil
}

// rateNow is the rate of one of the task's limits: as Redis has it if that is known,
// else as configured.
func (j *job) rateNow(i int) throttle.Rate {
	j.l.caller.mu.Lock()
	defer j.l.caller.mu.Unlock()
	if p, known := j.l.caller.paceNow(j.needs.limiters[i], time.Now()); known && p.rate.Permits > 0 {
		return p.rate
	}
	return j.needs.draws[i].Rate
}
