package scenario

import (
	"context"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/internal/figures"
	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
	"github.com/jobthrottle/jobthrottle/bench/internal/peer"
)

// Big is the name of the scenario with one big request.
const Big = "big"

func (b Bench) bigAmongSmall() Scenario {
	const permits = 500
	w := fleet.Work{
		Limits:     []fleet.Limit{{Name: Big, Permits: 1000, Interval: time.Second}},
		Clients:    8,
		Goroutines: 64,
		Length:     b.Size.Big,
		Cost: func(client, goroutine int) int64 {
			if client == 0 && goroutine == 0 {
				return permits
			}
			return 1
		},
	}
	s := Scenario{
		Name:  Big,
		Title: "One big among small: 500 of 1000/s for one caller, 1 for each of 511",
		Text: "In turn would be one big request for every round of the small ones: the more turns the big one gets, " +
			"up to as many as a small one, the fairer.",
		Base: peer.NameJobthrottle,
		Columns: []figures.Metric{
			figures.BigTurns, figures.SmallTurns, figures.PermitsPerSecond, figures.CallsPerPermit, figures.CPUPerPermit, figures.Busiest,
		},
	}
	for _, p := range b.waitingPeers() {
		s.Runs = append(s.Runs, Run{p.Name(), w.Length, func(ctx context.Context) (Result, error) {
			uses, f, err := b.measure(ctx, p, w)
			if err != nil {
				return Result{}, err
			}
			var turns float64
			for _, u := range uses {
				if u.Permits == permits {
					turns++
				}
			}
			f[figures.BigTurns] = turns
			f[figures.SmallTurns] = (float64(len(uses)) - turns) / float64(w.Clients*w.Goroutines-1)
			f[figures.Busiest] = float64(fleet.Busiest(uses, w.Limits[0].Interval))
			return Result{Figures: f}, nil
		}})
	}
	return s
}
