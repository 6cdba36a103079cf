package simulate

import (
	"fmt"
	"slices"
	"time"
)

// Figures are the results of a fleet.
type Figures struct {
	Start, Steady Load          // of the first second, and of the time that counts
	Permits       int           // used in the time that counts
	BySecond      []int         // used in each second from the beginning
	Busiest       int           // most permits used in any interval
	Served        int           // Clients that got a permit at all
	First         time.Duration // the longest that one of these waited for its first permit
	Jain          float64       // Jain's index of fairness over the Clients: 1 if all got the same number
	Stale         int           // permits that came too late to be used, and were exchanged

	fleet Fleet
}

// count computes the figures from the permits used.
func (g *Figures) count(uses []use) {
	f := g.fleet
	slices.SortFunc(uses, func(a, b use) int { return int(a.at - b.at) })
	g.BySecond = make([]int, int(f.Length.Seconds()))
	had := make([]float64, f.Clients)
	first := 0
	for i, u := range uses {
		if u.at >= f.Length {
			uses = uses[:i]
			break
		}
		if had[u.client] == 0 {
			g.Served++
			g.First = u.at
		}
		had[u.client]++
		if u.at >= f.Warm {
			g.Permits++
		}
		g.BySecond[int(u.at.Seconds())]++
		for uses[first].at <= u.at-f.Rate.Interval {
			first++
		}
		g.Busiest = max(g.Busiest, i-first+1)
	}
	var squares float64
	for _, x := range had {
		squares += x * x
	}
	sum := float64(len(uses))
	g.Jain = sum * sum / (float64(f.Clients) * max(squares, 1))
}

func (g Figures) seconds() float64 { return (g.fleet.Length - g.fleet.Warm).Seconds() }

// CallsPerSecond is how many calls a second the fleet makes to Redis.
func (g Figures) CallsPerSecond() float64 {
	return float64(g.Steady.Calls+g.Steady.Checks) / g.seconds()
}

// CallsPerPermit is how many calls the fleet makes for each permit used.
func (g Figures) CallsPerPermit() float64 {
	return float64(g.Steady.Calls+g.Steady.Checks) / float64(max(g.Permits, 1))
}

// Core is the part of Redis's core that the fleet uses.
func (g Figures) Core() float64 { return g.Steady.Busy.Seconds() / g.seconds() }

// Used is the part of the limit that was used. It does not show the guard, 1 %, because the
// time that counts is short: a burst less or more is a larger difference.
func (g Figures) Used() float64 {
	return float64(g.Permits) / (g.seconds() / g.fleet.Rate.Interval.Seconds() * float64(g.fleet.Rate.Permits))
}

// Head names the columns of Row.
const Head = `| limit | Clients x waiters | calls/s | checks/s | per permit | core | limit used | Clients served | last of their first permits | Jain | stale | first second: calls, backlog |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
`

// Row is a line of a Markdown table.
func (g Figures) Row() string {
	f := g.fleet
	return fmt.Sprintf("| %v | %d x %d | %.0f | %.0f | %.3g | %.1f %% | %.0f %% | %d | %v | %.3f | %d | %d, %v |\n",
		f.Rate, f.Clients, f.Waiters, float64(g.Steady.Calls)/g.seconds(), float64(g.Steady.Checks)/g.seconds(), g.CallsPerPermit(), 100*g.Core(),
		100*g.Used(), g.Served, g.First.Round(10*time.Millisecond), g.Jain, g.Stale, g.Start.Calls+g.Start.Checks, g.Start.Backlog.Round(time.Millisecond))
}

// Seconds is a line of a Markdown table with the permits that were used in some seconds.
func (g Figures) Seconds(permits ...int) string {
	row := fmt.Sprintf("| %v | %d x %d |", g.fleet.Rate, g.fleet.Clients, g.fleet.Waiters)
	for _, n := range permits {
		row += fmt.Sprintf(" %d |", n)
	}
	return row + "\n"
}
