package scenario

import (
	"context"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/internal/figures"
	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
	"github.com/jobthrottle/jobthrottle/bench/internal/peer"
)

// The names of the scenarios.
const (
	Contended1000 = "contended-1000"
	Contended50   = "contended-50"
	ManyProcesses = "many-processes"
	Composite     = "composite"
)

func (b Bench) contended1000() Scenario {
	s := b.contended(Contended1000, fleet.Limit{Name: Contended1000, Permits: 1000, Interval: time.Second}, 8, 64)
	s.Title = "Contended: 1000/s, 8 clients x 64 waiters"
	s.Text = "512 callers ask for one permit at a time and at once for the next."
	return s
}

func (b Bench) contended50() Scenario {
	s := b.contended(Contended50, fleet.Limit{Name: Contended50, Permits: 50, Interval: time.Second}, 8, 64)
	s.Title = "Contended: 50/s, 8 clients x 64 waiters"
	s.Text = "The same with a limit that makes each caller wait ten seconds."
	return s
}

func (b Bench) manyProcesses() Scenario {
	s := b.contended(ManyProcesses, fleet.Limit{Name: ManyProcesses, Permits: 1000, Interval: time.Second}, 64, 1)
	s.Title = "Many processes: 1000/s, 64 clients x 1 waiter"
	s.Text = "Nobody shares a client. Each caller comes back at once, so jobthrottle asks for a few permits more with each call."
	return s
}

// composite has limits that APIs often state together. The second binds once the first has let
// four bursts through. The third only has to be counted.
func (b Bench) composite() Scenario {
	limits := []fleet.Limit{
		{Name: "{composite}:second", Permits: 500, Interval: time.Second},
		{Name: "{composite}:five", Permits: 2000, Interval: 5 * time.Second},
		{Name: "{composite}:minute", Permits: 20_000, Interval: time.Minute},
	}
	w := fleet.Work{Limits: limits, Clients: 8, Goroutines: 64, Length: b.Size.Contended}
	s := Scenario{
		Name:  Composite,
		Title: "Three limits at a time: 500/s, 2,000 per 5 s and 20,000/min, 8 clients x 64 waiters",
		Text: "jobthrottle acquires them as one Group; callers of redis_rate acquire one after the other, in this order. A permit here is one " +
			"of each limit. Redisson, whose callers would have to do the same, is left out: its program acquires from one limiter.",
		Base: peer.NameJobthrottle,
		Columns: []figures.Metric{
			figures.PermitsPerSecond, figures.CallsPerPermit, figures.CPUPerPermit, figures.Busiest, figures.BusiestLong,
			figures.LateP50, figures.LateP99, figures.Jain,
		},
	}
	for _, p := range []peer.Peer{peer.Jobthrottle{Addr: b.addr()}, peer.RedisRate{Addr: b.addr()}} {
		s.Runs = append(s.Runs, Run{p.Name(), w.Length, func(ctx context.Context) (Result, error) {
			uses, f, err := b.measure(ctx, p, w)
			if err != nil {
				return Result{}, err
			}
			addSeen(f, uses, w)
			f[figures.BusiestLong] = float64(fleet.Busiest(uses, limits[1].Interval))
			return Result{Figures: f}, nil
		}})
	}
	return s
}

func (b Bench) contended(name string, limit fleet.Limit, clients, goroutines int) Scenario {
	w := fleet.Work{Limits: []fleet.Limit{limit}, Clients: clients, Goroutines: goroutines, Length: b.Size.Contended}
	s := Scenario{Name: name, Base: peer.NameJobthrottle, Columns: []figures.Metric{
		figures.PermitsPerSecond, figures.CallsPerPermit, figures.CPUPerPermit, figures.Busiest,
		figures.LateP50, figures.LateP99, figures.Jain,
	}}
	for _, p := range b.waitingPeers() {
		s.Runs = append(s.Runs, Run{p.Name(), w.Length, func(ctx context.Context) (Result, error) {
			uses, f, err := b.measure(ctx, p, w)
			if err != nil {
				return Result{}, err
			}
			addSeen(f, uses, w)
			return Result{Figures: f, Seen: fleet.Load(uses, limit.Interval, PlotStep, w.Length)}, nil
		}})
	}
	return s
}

// addSeen adds what a waiting fleet saw of its limits.
func addSeen(f figures.Figures, uses []fleet.Use, w fleet.Work) {
	late := fleet.Lateness(uses, w.Limits)
	f[figures.Busiest] = float64(fleet.Busiest(uses, w.Limits[0].Interval))
	f[figures.LateP50] = milliseconds(fleet.Percentile(late, 50))
	f[figures.LateP99] = milliseconds(fleet.Percentile(late, 99))
	f[figures.Jain] = fleet.Jain(uses, w.Clients)
}
