package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/internal/figures"
	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
	"github.com/jobthrottle/jobthrottle/bench/internal/peer"
)

// limiterCounts are the numbers of limiters; each has a scenario.
var limiterCounts = []int{1_000, 10_000, 100_000}

// ManyLimiters is the name of the scenario with that many limiters.
func ManyLimiters(limiters int) string { return fmt.Sprintf("many-limiters-%d", limiters) }

// manyLimiters has many limits, for example one for each account. Each was used before: the
// first use of a limiter costs more, because it creates the limiter.
func (b Bench) manyLimiters(limiters int) Scenario {
	w := fleet.Work{
		Apart:      true,
		Clients:    1,
		Goroutines: 256,
		Length:     b.Size.Many,
	}
	s := Scenario{
		Name:  ManyLimiters(limiters),
		Title: fmt.Sprintf("%d limiters that do not bind: one client, 256 at a time", limiters),
		Text: "Each request is for one of them, at random, each with a keep-alive of a minute and used once before. Requests that come together " +
			"share a script call of jobthrottle's.",
		Base: peer.NameJobthrottle,
		Columns: []figures.Metric{
			figures.PermitsPerSecond, figures.TookP50, figures.TookP99, figures.CallsPerPermit, figures.CPUPerPermit,
		},
	}
	for _, p := range []peer.Peer{peer.Jobthrottle{Addr: b.addr()}, peer.RedisRate{Addr: b.addr()}} {
		s.Runs = append(s.Runs, Run{p.Name(), w.Length, func(ctx context.Context) (Result, error) {
			w := w
			for i := range min(limiters, b.Size.Limiters) {
				w.Limits = append(w.Limits, fleet.Limit{Name: fmt.Sprintf("many:%d", i), Permits: 10_000, Interval: time.Second, KeepAlive: time.Minute})
			}
			return b.timed(ctx, p, w)
		}})
	}
	return s
}
