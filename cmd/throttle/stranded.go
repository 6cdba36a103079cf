package main

import (
	"context"
	"fmt"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// lowered is a limiter whose rate is to be lowered.
type lowered struct {
	name      string
	gives, to int64 // permits
	stays     bool  // the pinned rate stays, although the limit adapts
}

// maxLowered is how many values of a limit are checked for jobs that cost more.
const maxLowered = 1000

// strands asks on the terminal before limiters give less at once than some waiting jobs cost
// that could run now. Those jobs would wait until somebody raises the limit again. The jobs of
// a limit that adapts raise it themselves. If there are no such jobs, strands does not ask.
func (s *session) strands(ctx context.Context, what string, to []lowered) error {
	stranded, sure := 0, len(to) <= maxLowered
	to = to[:min(len(to), maxLowered)]
	names := make([]string, len(to))
	for i, l := range to {
		names[i] = l.name
	}
	adapts, err := s.fleet.LearntOf(ctx, names...)
	if err != nil {
		return err
	}
	for _, l := range to {
		if _, adapts := adapts[l.name]; adapts && !l.stays {
			continue
		}
		n, all, err := s.parked.Stranded(ctx, l.name, l.gives, l.to)
		if err != nil {
			return err
		}
		stranded, sure = stranded+n, sure && all
	}
	if stranded == 0 {
		return nil
	}
	why := jobview.WouldWait(stranded, sure)
	return s.confirm(ctx, why, fmt.Sprintf("%s: %s.", what, why))
}

// lowers reports whether a change reduces what a limiter gives at once.
func lowers(before *limiter, rate throttle.Rate) bool {
	return before != nil && rate.Permits < before.rate.Permits
}
