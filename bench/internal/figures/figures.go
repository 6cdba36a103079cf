// Package figures holds what was measured: figures of peers in rounds, their medians, and
// ratios that are computed within each round.
package figures

import "slices"

// Metric is something that is measured. Its text is the heading of its column.
type Metric string

// The metrics.
const (
	PermitsPerSecond Metric = "permits/s"
	CallsPerPermit   Metric = "script calls per permit"
	CPUPerPermit     Metric = "Redis CPU per permit, us"
	Busiest          Metric = "busiest window"
	BusiestLong      Metric = "busiest 5 s"
	LateP50          Metric = "late p50, ms"
	LateP99          Metric = "late p99, ms"
	Jain             Metric = "Jain, clients"
	TookP50          Metric = "acquire p50, us"
	TookP99          Metric = "acquire p99, us"
	BigTurns         Metric = "turns of the big one"
	SmallTurns       Metric = "turns of a small one, mean"
	Bytes            Metric = "bytes"
	Seconds          Metric = "first to last start, s"
	OfIdeal          Metric = "of the ideal"
	CallsPerTask     Metric = "script calls per task"
	CPUPerTask       Metric = "Redis CPU per task, us"
	CallsPerSecond   Metric = "script calls/s"
	PartOfACore      Metric = "Redis CPU, % of a core"
)

// worstCounts are metrics whose figure is the worst round: a limit that is broken in one round
// of five is broken.
var worstCounts = []Metric{Busiest, BusiestLong}

// Figures are the results of one peer in one round.
type Figures map[Metric]float64

// Rounds are the figures of the peers of one scenario.
type Rounds struct {
	peers   []string
	figures map[string]map[int]Figures
}

// Add records the results of a peer in a round.
func (r *Rounds) Add(peer string, round int, f Figures) {
	if r.figures == nil {
		r.figures = map[string]map[int]Figures{}
	}
	if r.figures[peer] == nil {
		r.figures[peer] = map[int]Figures{}
		r.peers = append(r.peers, peer)
	}
	r.figures[peer][round] = f
}

// Peers are those that have figures, in the order in which they first had some.
func (r *Rounds) Peers() []string { return r.peers }

// Figure is the median of a peer's rounds. For something that must not happen even once, it is
// the worst of them. The second result is false if the peer has no such figure.
func (r *Rounds) Figure(peer string, m Metric) (float64, bool) {
	var xs []float64
	for _, f := range r.figures[peer] {
		if x, ok := f[m]; ok {
			xs = append(xs, x)
		}
	}
	if len(xs) == 0 {
		return 0, false
	}
	if slices.Contains(worstCounts, m) {
		return slices.Max(xs), true
	}
	return Median(xs), true
}

// Ratio is the median of the ratios, round by round, of a peer's figure to another's. Whatever
// else the machine did affects both in one round. The second result is false if there is no
// round in which both have a figure.
func (r *Rounds) Ratio(m Metric, peer, to string) (float64, bool) {
	var xs []float64
	for round, f := range r.figures[peer] {
		x, ok := f[m]
		y, other := r.figures[to][round][m]
		if ok && other && y != 0 {
			xs = append(xs, x/y)
		}
	}
	if len(xs) == 0 {
		return 0, false
	}
	return Median(xs), true
}

// Median is the middle of xs, which must not be empty, or the mean of the two in the middle.
func Median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	half := len(xs) / 2
	if len(xs)%2 == 1 {
		return xs[half]
	}
	return (xs[half-1] + xs[half]) / 2
}
