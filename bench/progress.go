package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/internal/figures"
	"github.com/jobthrottle/jobthrottle/bench/internal/scenario"
)

// progress prints one line for each step: what is being measured, and its result.
type progress struct {
	out         io.Writer
	rounds      int
	step, steps int
	left        time.Duration // the time of the steps that have not begun
}

func newProgress(out io.Writer, scenarios []scenario.Scenario, rounds int) *progress {
	p := &progress{out: out, rounds: rounds}
	for _, s := range scenarios {
		for _, run := range s.Runs {
			p.steps += rounds
			p.left += time.Duration(rounds) * run.Length
		}
	}
	return p
}

func (p *progress) begin(round int, s scenario.Scenario, run scenario.Run) {
	p.step++
	fmt.Fprintf(p.out, "step %d of %d, about %v left: round %d of %d, %s, %s ... ",
		p.step, p.steps, p.left.Round(time.Second), round+1, p.rounds, s.Name, run.Peer)
	p.left -= run.Length
}

func (p *progress) end(result string) { fmt.Fprintln(p.out, result) }

// summary is the first figures of a table's row.
func summary(columns []figures.Metric, f figures.Figures) string {
	var parts []string
	for _, m := range columns {
		if x, ok := f[m]; ok && len(parts) < 3 {
			parts = append(parts, fmt.Sprintf("%s %.4g", m, x))
		}
	}
	return strings.Join(parts, "; ")
}
