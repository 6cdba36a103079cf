// Package scenario has what is measured: the work, and the figures by which peers are compared.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/internal/figures"
	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
	"github.com/jobthrottle/jobthrottle/bench/internal/peer"
	"github.com/jobthrottle/jobthrottle/bench/internal/redisserver"
)

// Scenario is one kind of work, for each of its peers.
type Scenario struct {
	Name    string // on the command line
	Title   string
	Text    string // what is done and how to read the figures
	Base    string // the peer to which the others are compared
	Columns []figures.Metric
	Runs    []Run
}

// Run measures one peer, once.
type Run struct {
	Peer    string
	Length  time.Duration // about how long it takes
	Measure func(ctx context.Context) (Result, error)
}

// Result is the result of one peer in one round.
type Result struct {
	Figures figures.Figures
	Seen    []int64 // permits in the interval up to each PlotStep, as callers saw it; nil if the plot does not need it
}

// PlotStep is how much time a point of Seen represents. Nobody sees more detail than a line of
// a few hundred points shows.
const PlotStep = 20 * time.Millisecond

// Size is how long and how much a scenario runs.
type Size struct {
	Contended    time.Duration
	NeverBinding time.Duration
	Many         time.Duration
	Limiters     int // at most, in the scenarios with many limiters
	Big          time.Duration
	Log          int64         // permits of the interval whose log is measured
	LogInterval  time.Duration // in which they are used
	Tasks        int
	Patience     time.Duration // how long to wait for tasks that do not start
	Idle         time.Duration // for which idle servers are watched
}

// Full is the size for published figures.
func Full() Size {
	return Size{
		Contended: 6 * time.Second, NeverBinding: 1500 * time.Millisecond, Many: 3 * time.Second, Limiters: 100_000, Big: 8 * time.Second,
		Log: 100_000, LogInterval: 5 * time.Second, Tasks: 400, Patience: time.Minute, Idle: 1500 * time.Millisecond,
	}
}

// Quick only shows that everything runs. A contended limit has more than one interval: on a
// machine that starts slowly, the first may pass unused.
func Quick() Size {
	return Size{
		Contended: 2500 * time.Millisecond, NeverBinding: 200 * time.Millisecond, Many: 200 * time.Millisecond, Limiters: 2_000, Big: 2 * time.Second,
		Log: 5_000, LogInterval: time.Second, Tasks: 80, Patience: 20 * time.Second, Idle: time.Second,
	}
}

// Bench is where scenarios are measured.
type Bench struct {
	Server   *redisserver.Server
	Redisson *peer.Redisson // nil: there is no Java, and no scenario has Redisson
	Size     Size
}

// All returns the scenarios, in the order in which they are measured and reported.
func (b Bench) All() []Scenario {
	scenarios := []Scenario{
		b.contended1000(),
		b.contended50(),
		b.manyProcesses(),
		b.neverBinding(1),
		b.neverBinding(16),
		b.neverBinding(256),
		b.bigAmongSmall(),
		b.memory(),
		b.drain(),
		b.idle(),
		b.composite(),
	}
	for _, n := range limiterCounts {
		scenarios = append(scenarios, b.manyLimiters(n))
	}
	return scenarios
}

// Names returns the names of all scenarios.
func Names() []string {
	var names []string
	for _, s := range (Bench{Size: Quick()}).All() {
		names = append(names, s.Name)
	}
	return names
}

// waitingPeers are those whose callers can wait for permits.
func (b Bench) waitingPeers() []peer.Peer {
	peers := []peer.Peer{peer.Jobthrottle{Addr: b.addr()}, peer.RedisRate{Addr: b.addr()}}
	if b.Redisson != nil {
		peers = append(peers, b.Redisson)
	}
	return peers
}

func (b Bench) addr() string {
	if b.Server == nil {
		return "" // nobody runs it: the caller only wants to know the scenarios
	}
	return b.Server.Addr
}

// errNothing distinguishes a peer that did nothing from one whose work cost nothing.
var errNothing = errors.New("not one permit was handed out")

// measure lets a fleet work under a peer, on an empty server. Connecting and closing are not
// measured: a fleet that works for days does that once.
func (b Bench) measure(ctx context.Context, p peer.Peer, w fleet.Work) (uses []fleet.Use, f figures.Figures, err error) {
	members, err := p.Join(ctx, w)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if closed := members.Close(); ctx.Err() == nil { // its end may have ended a peer's process
			err = errors.Join(err, closed)
		}
	}()
	usage, err := b.use(ctx, func() error {
		if f, ok := members.(*fleet.Fleet); ok && w.Apart {
			return f.Once(ctx)
		}
		return nil
	}, func() (err error) {
		uses, err = members.Work(ctx)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	permits := float64(fleet.Permits(uses))
	if permits == 0 {
		return nil, nil, errNothing
	}
	return uses, figures.Figures{
		figures.PermitsPerSecond: permits / w.Length.Seconds(),
		figures.CallsPerPermit:   float64(usage.ScriptCalls) / permits,
		figures.CPUPerPermit:     microseconds(usage.CPU) / permits,
	}, nil
}

// use is what the server does while work runs. The server is empty except for what prepare
// leaves there.
func (b Bench) use(ctx context.Context, prepare, work func() error) (redisserver.Usage, error) {
	if err := b.Server.Flush(ctx); err != nil {
		return redisserver.Usage{}, fmt.Errorf("empty Redis: %w", err)
	}
	if err := prepare(); err != nil {
		return redisserver.Usage{}, err
	}
	runtime.GC() // this run must not pay for the garbage of the last
	before, err := b.Server.Usage(ctx)
	if err != nil {
		return redisserver.Usage{}, err
	}
	if err := work(); err != nil {
		return redisserver.Usage{}, err
	}
	after, err := b.Server.Usage(ctx)
	return after.Sub(before), err
}

func microseconds(d time.Duration) float64 { return d.Seconds() * 1e6 }
func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }
