package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/internal/figures"
	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
	"github.com/jobthrottle/jobthrottle/bench/internal/peer"
)

// NeverBinding is the name of the scenario with that many goroutines.
func NeverBinding(goroutines int) string { return fmt.Sprintf("never-binding-%d", goroutines) }

// plenty is more than any peer can grant in a second.
const plenty = 100_000_000

func (b Bench) neverBinding(goroutines int) Scenario {
	w := fleet.Work{
		Limits:     []fleet.Limit{{Name: "never-binding", Permits: plenty, Interval: time.Second}},
		Clients:    1,
		Goroutines: goroutines,
		Length:     b.Size.NeverBinding,
	}
	s := Scenario{
		Name:  NeverBinding(goroutines),
		Title: fmt.Sprintf("A limit that never binds: one client, %d at a time", goroutines),
		Text: fmt.Sprintf("What a limit costs those whom it does not hold up; here it is %d/s. The empty script is the least that asking Redis for "+
			"each permit can cost. jobthrottle takes in advance what half a guard used, up to 1/16 of the limit; a limit without a guard has no prefetch, and "+
			"each Acquire asks Redis.", plenty),
		Base: peer.NameScript,
		Columns: []figures.Metric{
			figures.PermitsPerSecond, figures.TookP50, figures.TookP99, figures.CallsPerPermit, figures.CPUPerPermit,
		},
	}
	if goroutines > 1 {
		s.Text = "" // the text of the scenario before applies
	}
	peers := []peer.Peer{
		peer.Script{Addr: b.addr()},
		peer.Jobthrottle{Addr: b.addr()},
		peer.Jobthrottle{Addr: b.addr(), NoPrefetch: true},
		peer.RedisRate{Addr: b.addr()},
	}
	if b.Redisson != nil {
		peers = append(peers, b.Redisson)
	}
	for _, p := range peers {
		s.Runs = append(s.Runs, Run{p.Name(), w.Length, func(ctx context.Context) (Result, error) { return b.timed(ctx, p, w) }})
	}
	return s
}

// timed lets a fleet work under a peer, and measures how long requests took.
func (b Bench) timed(ctx context.Context, p peer.Peer, w fleet.Work) (Result, error) {
	uses, f, err := b.measure(ctx, p, w)
	if err != nil {
		return Result{}, err
	}
	took := fleet.Took(uses)
	f[figures.TookP50] = microseconds(fleet.Percentile(took, 50))
	f[figures.TookP99] = microseconds(fleet.Percentile(took, 99))
	return Result{Figures: f}, nil
}
