//go:build unix

package main

import (
	"context"
	"errors"
	"math"
	"os"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/check"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/fault"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/record"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/site"
	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
)

// mix is the site of a run: jobs hold and park as by default. Processes start, stop and share
// their cores with the API and with a Redis that waits for its disk. So requests may be late by
// more than the default guard of 10ms.
var mix = site.Plan{
	Limit:   check.Limit{Permits: 100, Interval: time.Second, Guard: 200 * time.Millisecond},
	Workers: 3, Slots: 20, Waiting: 10, Hold: "2s",
}

// mixed is one run: it has jobs for all of its length, and faults by schedule.
func mixed(ctx context.Context, programs site.Programs, slots []fault.Slot, length time.Duration, dir string) (result check.Result, err error) {
	s, stop, err := open(ctx, programs, mix, dir, jobsFor(mix.Limit, length))
	if err != nil {
		return result, err
	}
	run := check.Run{Limit: mix.Limit, Begin: record.Now()}
	if err := s.StartWorkers(); err != nil {
		return result, errors.Join(err, stop(&run))
	}
	err = trouble(ctx, s, slots, length, &run)
	if err == nil {
		err = s.StopWorkers()
	}
	if err == nil {
		run.Waiting, err = s.Waiting(ctx)
	}
	run.Enqueued, run.Levels = s.Enqueued(), s.Levels()
	if err = errors.Join(err, stop(&run)); err != nil {
		return result, err
	}
	if len(run.Waiting) == 0 {
		return result, errors.New("the work ran out: nothing can be said about idle time")
	}
	return check.Check(run), nil
}

// trouble makes the faults of a run, and writes down when.
func trouble(ctx context.Context, s *site.Site, slots []fault.Slot, length time.Duration, run *check.Run) error {
	defer func() {
		run.End = record.Now()
		if n := len(run.Phases); n > 0 {
			run.Phases[n-1].Next = run.End
		}
	}()
	for _, slot := range slots {
		if err := until(ctx, run.Begin+slot.At); err != nil {
			return err
		}
		p := check.Phase{Fault: slot.Fault.Name, Begin: record.Now()}
		if n := len(run.Phases); n > 0 {
			run.Phases[n-1].Next = p.Begin
		}
		lasts, cancel := context.WithTimeout(ctx, fault.Length)
		err := slot.Do(lasts, s)
		cancel()
		p.End = record.Now()
		run.Phases = append(run.Phases, p)
		if err != nil {
			return err
		}
	}
	return until(ctx, run.Begin+length)
}

// open starts a site that has n jobs to do. Its stop puts the arrivals into a run.
func open(ctx context.Context, programs site.Programs, plan site.Plan, dir string, n int) (*site.Site, func(*check.Run) error, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, nil, err
	}
	s, err := site.Start(ctx, programs, plan, dir)
	if err != nil {
		return nil, nil, err
	}
	stop := func(run *check.Run) (err error) {
		run.Arrivals, err = s.Stop()
		return err
	}
	if n > 0 {
		if err := s.Enqueue(ctx, n); err != nil {
			return nil, nil, errors.Join(err, stop(&check.Run{}))
		}
	}
	return s, stop, nil
}

// jobsFor is more than a run can do, even with the limit raised by half for some of it.
func jobsFor(l check.Limit, length time.Duration) int {
	return l.Permits * int(math.Ceil(float64(length)/float64(l.Interval))*1.25+1)
}

// until waits for a time of the machine's clock.
func until(ctx context.Context, t time.Duration) error { return fleet.Sleep(ctx, t-record.Now()) }
