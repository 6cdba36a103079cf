//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/check"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/record"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/site"
	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
)

// herd is the site of a worker that dies while all its slots wait. Permits are spread evenly,
// so that each unused one leaves a gap.
var herd = site.Plan{
	Limit:  check.Limit{Permits: 50, Interval: time.Second, Guard: 200 * time.Millisecond},
	Smooth: true, Workers: 2, Slots: 20, Waiting: 20, Hold: "forever",
}

const (
	deaths     = 5
	settles    = 5 * time.Second // until all slots of a worker that has started have reservations
	deathsTake = deaths * 2 * settles
)

// horizon is how far ahead a process reserves permits: max(interval, 1 s), and one permit more.
func horizon(l check.Limit) time.Duration {
	return max(l.Interval, time.Second) + (l.Interval+l.Guard)/time.Duration(l.Permits)
}

// die kills a worker whose slots all have reservations, several times.
func die(ctx context.Context, programs site.Programs, dir string) (crashes []check.Crash, err error) {
	s, stop, err := open(ctx, programs, herd, dir, jobsFor(herd.Limit, deathsTake))
	if err != nil {
		return nil, err
	}
	run := check.Run{Limit: herd.Limit, Begin: record.Now()}
	died, err := kill(ctx, s)
	run.End = record.Now()
	if err = errors.Join(err, stop(&run)); err != nil {
		return nil, err
	}
	if w := check.Check(run).Busiest; w.Above > 0 {
		return nil, fmt.Errorf("%d arrivals in one interval, the limit is %d", w.Arrivals, w.Limit)
	}
	for _, at := range died {
		crashes = append(crashes, check.CheckCrash(run, at, horizon(herd.Limit)))
	}
	return crashes, nil
}

// kill kills the first worker several times, and returns when.
func kill(ctx context.Context, s *site.Site) (died []time.Duration, err error) {
	if err := s.StartWorkers(); err != nil {
		return nil, err
	}
	victim := s.Workers[0]
	for range deaths {
		if err := fleet.Sleep(ctx, settles); err != nil {
			return nil, err
		}
		died = append(died, record.Now())
		victim.Kill()
		if err := fleet.Sleep(ctx, settles); err != nil {
			return nil, err
		}
		if err := victim.Start(); err != nil {
			return nil, err
		}
	}
	return died, nil
}
