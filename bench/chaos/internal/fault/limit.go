//go:build unix

package fault

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/site"
	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
)

// changeLimit changes the limit and pauses it, at random. In the end it restores the limit.
func changeLimit(ctx context.Context, s *site.Site, r *rand.Rand) error {
	whole := s.Plan.Limit.Permits
	ms := func(from, to int) time.Duration { return time.Duration(from+r.IntN(to-from)) * time.Millisecond }
	for fleet.Sleep(ctx, ms(100, 600)) == nil {
		switch r.IntN(4) { // an error means that Redis is in trouble, too, or that ctx has ended
		case 0:
			_ = s.Limit.Pause(ctx, ms(100, 800))
		case 1:
			_ = s.ChangeLimit(ctx, whole/2)
		case 2:
			_ = s.ChangeLimit(ctx, whole*3/2)
		case 3:
			_ = s.ChangeLimit(ctx, whole)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := s.ChangeLimit(ctx, whole); err != nil {
		return err
	}
	return s.Limit.Resume(ctx)
}
