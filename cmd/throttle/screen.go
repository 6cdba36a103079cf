package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/plain"
	"github.com/jobthrottle/jobthrottle/throttle"
)

const (
	barWidth = 20
	// trail is how many snapshots the sparkline shows.
	trail = 30
)

// screen is what top shows: the last snapshot, and how full each limit was in the snapshots
// before.
type screen struct {
	snapshot
	history       map[string][]float64
	width, height int // zero: unlimited
}

func newScreen() *screen { return &screen{history: map[string][]float64{}} }

// take makes the screen show a snapshot. If reading it failed, the last one stays.
func (s *screen) take(shot snapshot) {
	if shot.err != nil {
		s.err = shot.err
		return
	}
	history := make(map[string][]float64, len(shot.limiters))
	for _, l := range shot.limiters {
		past := append(s.history[l.Name], l.share())
		history[l.Name] = past[max(0, len(past)-trail):]
	}
	s.snapshot, s.history = shot, history
}

// text is the whole screen, cut to its size.
func (s *screen) text() string {
	head := s.at.Format("15:04:05") + "   " + countOf(s.total) + matching(s.match)
	if s.at.IsZero() {
		head = "reading the limits ..."
	}
	if len(s.limiters) < s.total {
		head += fmt.Sprintf(" (%d watched, choose with --match)", len(s.limiters))
	}
	if s.err != nil {
		head += "   Redis does not answer, trying on: " + plain.Text(s.err.Error())
	}
	rows, slots := s.limiters, s.inFlight
	if s.height > 0 {
		left := max(s.height-4, 0) // without the head, two titles and the foot
		if len(slots) > 0 {
			slots = slots[:min(len(slots), left/3)]
			left = max(left-len(slots)-2, 0)
		}
		rows = rows[:min(len(rows), left)]
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LIMIT\tRATE\tUSED\t\tRESERVED\tNEXT FREE\tPARKED\tLATELY\tSTATE")
	for _, l := range rows {
		if l.err != nil {
			fmt.Fprintf(w, "%s\t-\t\t\t\t\t\t\t%s\n", plain.Text(l.Name), l.state())
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d of %d\t%d\t%s\t%d\t%s\t%s\n", plain.Text(l.Name), l.Rate, bar(l.share()), l.Used, l.whole(),
			l.Reserved, l.nextFree(), l.Parked, spark(s.history[l.Name]), l.state())
	}
	_ = w.Flush() // into memory
	if len(slots) > 0 {
		fmt.Fprintln(&table)
		fmt.Fprintln(w, "IN FLIGHT\tTAKEN\t\tWAITING\tFOR")
		for _, u := range slots {
			if u.Err != nil {
				fmt.Fprintf(w, "%s\t\t-\t\tbroken: %s\n", plain.Text(u.Name), why(u.Err))
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%d of %d\t%d\t%s\n", plain.Text(u.Name), bar(slotShare(u)), u.Taken, u.Limit, u.Waiting, u.Oldest.Round(time.Second))
		}
		_ = w.Flush()
	}
	lines := append([]string{head, ""}, strings.Split(strings.TrimSuffix(table.String(), "\n"), "\n")...)
	if s.height > 0 {
		lines = append(lines, "q quits")
	}
	for i, line := range lines {
		lines[i] = cli.Clip(strings.TrimRight(line, " "), s.width)
	}
	return strings.Join(lines, "\n") + "\n"
}

// whole is how many permits the limit has. A per_client limit has that many for each of the
// clients seen, or for one if none was.
func (l limiter) whole() int64 {
	if l.rate.Type == throttle.PerClient {
		return l.Permits * int64(max(len(l.Clients), 1))
	}
	return l.Permits
}

// share is how much of the limit is used, from 0 to 1.
func (l limiter) share() float64 { return float64(l.Used) / float64(max(l.whole(), 1)) }

func bar(share float64) string {
	filled := min(max(int(share*barWidth+0.5), 0), barWidth)
	return strings.Repeat("█", filled) + strings.Repeat("░", barWidth-filled)
}

// spark draws one character for each share, the latest last.
func spark(shares []float64) string {
	levels := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, share := range shares {
		b.WriteRune(levels[min(max(int(share*float64(len(levels))), 0), len(levels)-1)])
	}
	return b.String()
}
