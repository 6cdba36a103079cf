// Package report writes what was measured: a Markdown file for people, with a plot.
package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/internal/figures"
)

// Report is a whole run.
type Report struct {
	Date     time.Time
	Took     time.Duration
	Rounds   int
	Machine  []Fact
	Notes    []string // what a reader has to know about this run
	Targets  []figures.Reached
	Sections []Section
	Plot     string // its file, beside the report; "" means there is none
}

// Fact is something about the machine or a version.
type Fact struct{ Name, Value string }

// Section is a scenario.
type Section struct {
	Title, Text string
	Base        string // the peer to which the others are compared
	Columns     []figures.Metric
	Rounds      *figures.Rounds
}

// compared are the metrics whose ratios say something.
var compared = []figures.Metric{
	figures.PermitsPerSecond, figures.CallsPerPermit, figures.CPUPerPermit, figures.TookP50, figures.TookP99,
	figures.Bytes, figures.Seconds, figures.CallsPerTask, figures.CPUPerTask,
}

const intro = `Written by ` + "`go run ./bench`" + `, which measures this project and others by turns on one redis-server of its own, all
on one machine, over loopback. Clients have connections of their own, as processes have, but share a process (Redisson's
a JVM, warm and with its default settings); go-redis heeds deadlines (ContextTimeoutEnabled). They make the connections that
they use before a run is measured, and are closed after it. redis_rate knows no waiting: its callers sleep as long as it says (RetryAfter), then ask
again; its burst is the rate, as its PerSecond has it, which alone lets twice the limit through. %d %s, medians, each round
beginning with another; a busiest window is the worst of all rounds. In parentheses: how many times the first row's figure,
computed within each round, then the median of those.

- script calls, Redis CPU: what the server itself counts (INFO commandstats, INFO cpu), whoever caused it
- busiest window: the most permits that callers were handed in any stretch of time as long as the limit's interval
- late: how long after the earliest time that the limit allows, given the permits handed out before; below zero is too
  early: more than the limit within one interval. jobthrottle is late by its guard (1 %% of the interval) on purpose
- Jain: fairness over clients, 1 is equal
`

// WriteMarkdown writes the report.
func (r Report) WriteMarkdown(out io.Writer) error {
	var b strings.Builder
	rounds := "rounds"
	if r.Rounds == 1 {
		rounds = "round"
	}
	fmt.Fprintf(&b, "# Benchmarks\n\n"+intro+"\n", r.Rounds, rounds)
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "**%s**\n\n", note)
	}
	facts := []Fact{{"date", r.Date.UTC().Format(time.DateOnly)}, {"length", r.Took.Round(time.Second).String()}}
	Table(&b, []string{"", ""}, func(row func(...string)) {
		for _, f := range append(facts, r.Machine...) {
			row(f.Name, f.Value)
		}
	})
	if r.Plot != "" {
		fmt.Fprintf(&b, "![permits in the last second, script calls and Redis CPU per permit](%s)\n\n", r.Plot)
	}
	if len(r.Targets) > 0 {
		b.WriteString("## Targets\n\n")
		writeTargets(&b, r.Targets)
	}
	for _, s := range r.Sections {
		fmt.Fprintf(&b, "## %s\n\n", s.Title)
		if s.Text != "" {
			fmt.Fprintf(&b, "%s\n\n", s.Text)
		}
		s.write(&b)
	}
	_, err := io.WriteString(out, strings.TrimRight(b.String(), "\n")+"\n")
	return err
}

// WriteTargets writes which targets were reached.
func WriteTargets(out io.Writer, targets []figures.Reached) error {
	var b strings.Builder
	writeTargets(&b, targets)
	_, err := io.WriteString(out, b.String())
	return err
}

func writeTargets(b *strings.Builder, targets []figures.Reached) {
	Table(b, []string{"what", "target", "measured", "reached"}, func(row func(...string)) {
		for _, t := range targets {
			measured, reached := "not measured", "-"
			if t.Known {
				measured, reached = ofTarget(t.Target, t.Figure), "no"
			}
			if t.Yes {
				reached = "yes"
			}
			row(t.What, asked(t.Target), measured, reached)
		}
	})
}

func (s Section) write(b *strings.Builder) {
	heads := []string{""}
	for _, m := range s.Columns {
		heads = append(heads, string(m))
	}
	Table(b, heads, func(row func(...string)) {
		for _, p := range s.peers() {
			cells := []string{p}
			for _, m := range s.Columns {
				cells = append(cells, s.cell(p, m))
			}
			row(cells...)
		}
	})
}

// peers returns the peers of a section. The one to which the others are compared is first.
func (s Section) peers() []string {
	peers := slices.Clone(s.Rounds.Peers())
	slices.SortStableFunc(peers, func(a, b string) int {
		switch s.Base {
		case a:
			return -1
		case b:
			return 1
		}
		return 0
	})
	return peers
}

func (s Section) cell(peer string, m figures.Metric) string {
	x, ok := s.Rounds.Figure(peer, m)
	if !ok {
		return "-"
	}
	ratio, ok := s.Rounds.Ratio(m, peer, s.Base)
	if !ok || peer == s.Base || !slices.Contains(compared, m) {
		return number(x)
	}
	return fmt.Sprintf("%s (%s)", number(x), times(ratio))
}

// Table writes a Markdown table whose columns are aligned in the source, too.
func Table(b *strings.Builder, heads []string, fill func(row func(...string))) {
	rows := [][]string{heads}
	fill(func(cells ...string) { rows = append(rows, cells) })
	widths := make([]int, len(heads))
	for _, cells := range rows {
		for i, c := range cells {
			widths[i] = max(widths[i], len(c), 3)
		}
	}
	line := func(cells []string) {
		for i, c := range cells {
			fmt.Fprintf(b, "| %-*s ", widths[i], c)
		}
		b.WriteString("|\n")
	}
	line(rows[0])
	for _, w := range widths {
		b.WriteString("| " + strings.Repeat("-", w) + " ")
	}
	b.WriteString("|\n")
	for _, cells := range rows[1:] {
		line(cells)
	}
	b.WriteString("\n")
}
