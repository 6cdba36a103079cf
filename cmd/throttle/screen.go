package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/plain"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
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
	lines := append([]string{head, ""}, s.table(rows)...)
	if len(slots) > 0 {
		lines = append(append(lines, ""), slotsTable(slots)...)
	}
	if s.height > 0 {
		lines = append(lines, "q quits")
	}
	for i, line := range lines {
		lines[i] = cli.Clip(line, s.width)
	}
	return strings.Join(lines, "\n") + "\n"
}

// table has a line for each limit. If all does not fit, the sparklines are shorter, and if that
// is not enough, the bars are left out.
func (s *screen) table(limiters []limiter) []string {
	if s.width == 0 {
		return aligned(s.rows(limiters, true, trail))
	}
	sound := slices.DeleteFunc(slices.Clone(limiters), func(l limiter) bool { return l.err != nil })
	bars := true
	width := widest(aligned(s.rows(sound, bars, 0)))
	if width > s.width {
		bars = false
		width = widest(aligned(s.rows(sound, bars, 0)))
	}
	return aligned(s.rows(limiters, bars, min(max(s.width-width-len("  "), 0), trail)))
}

// rows are the lines of a table for aligned, with the bars if these are wanted. They have
// sparklines of so many characters if the title fits above these.
func (s *screen) rows(limiters []limiter, bars bool, sparks int) []string {
	const lately = "LATELY"
	row := func(spark string, cells ...string) string {
		if sparks >= len(lately) {
			cells = append(cells, spark)
		}
		return strings.Join(cells, "\t")
	}
	rows := []string{row(lately, "LIMIT", "RATE", "USED", "STATE", "RESERVED", "NEXT FREE", "PARKED")}
	for _, l := range limiters {
		if l.err != nil {
			rows = append(rows, plain.Text(l.Name)+"  "+l.state())
			continue
		}
		used := fmt.Sprintf("%d of %d", l.Used, l.whole())
		if bars {
			used = bar(l.share()) + "  " + used
		}
		past := s.history[l.Name]
		past = past[max(len(past)-sparks, 0):]
		rows = append(rows, row(spark(past), plain.Text(l.Name), l.Rate, used, l.state(), fmt.Sprint(l.Reserved), l.nextFree(), fmt.Sprint(l.Parked)))
	}
	return rows
}

// slotsTable has a line for each limit in flight.
func slotsTable(slots []operate.SlotUsage) []string {
	rows := []string{"IN FLIGHT\tTAKEN\tWAITING\tFOR"}
	for _, u := range slots {
		if u.Err != nil {
			rows = append(rows, plain.Text(u.Name)+"  broken: "+why(u.Err))
			continue
		}
		rows = append(rows, fmt.Sprintf("%s\t%s  %d of %d\t%d\t%s", plain.Text(u.Name), bar(slotShare(u)), u.Taken, u.Limit, u.Waiting, u.Oldest.Round(time.Second)))
	}
	return aligned(rows)
}

// aligned puts the cells of the lines, which tabs separate, below each other. A line without a
// tab stays as it is.
func aligned(lines []string) []string {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	isRow := func(line string) bool { return strings.Contains(line, "\t") }
	for _, line := range lines {
		if isRow(line) {
			fmt.Fprintln(w, line)
		}
	}
	_ = w.Flush() // into memory
	rows := strings.Split(table.String(), "\n")
	all := slices.Clone(lines)
	for i, line := range all {
		if isRow(line) {
			all[i], rows = strings.TrimRight(rows[0], " "), rows[1:]
		}
	}
	return all
}

func widest(lines []string) int {
	width := 0
	for _, line := range lines {
		width = max(width, utf8.RuneCountInString(line))
	}
	return width
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
