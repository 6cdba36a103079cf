//go:build unix

package site

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/check"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/record"
	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
	"github.com/jobthrottle/jobthrottle/throttle"
)

const (
	// changeTakes is the time within which every worker acts on a change.
	changeTakes = 100 * time.Millisecond
	// again is how long after a failure a change is tried again.
	again = 50 * time.Millisecond
)

// Rate is the rate of the limit, with another number of permits.
func (s *Site) Rate(permits int) throttle.Rate {
	l := s.Plan.Limit
	return throttle.Rate{Permits: int64(permits), Interval: l.Interval, Guard: l.Guard, Smooth: s.Plan.Smooth}
}

// ChangeLimit changes the number of permits, and keeps what was used. While Redis
// is in trouble it tries again, until ctx ends. It is safe for concurrent use,
// one change at a time.
//
// The new number may be in force from the call on. The old one is in force until three things
// have happened: Redis has acknowledged the change, the workers have had their time to act on
// it, and what they had granted before has arrived.
func (s *Site) ChangeLimit(ctx context.Context, permits int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.levels = append(s.levels, check.Level{Permits: permits, From: record.Now(), To: check.Never})
	for {
		_, err := s.Limit.UpdateRate(ctx, s.Rate(permits))
		if err == nil {
			break
		}
		if fleet.Sleep(ctx, again) != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	over := record.Now() + changeTakes + s.Plan.Limit.Guard
	for i := range s.levels[:len(s.levels)-1] {
		s.levels[i].To = min(s.levels[i].To, over)
	}
	return nil
}

// Levels returns all numbers of permits that were in force, and when.
func (s *Site) Levels() []check.Level {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.levels)
}
