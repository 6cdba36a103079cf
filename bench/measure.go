package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/internal/figures"
	"github.com/jobthrottle/jobthrottle/bench/internal/report"
	"github.com/jobthrottle/jobthrottle/bench/internal/scenario"
)

// measured is the results of all rounds.
type measured struct {
	rounds   map[string]*figures.Rounds    // by scenario
	seen     map[string]map[string][]int64 // by scenario and peer: what callers saw in the first round
	failures []error
}

// measure runs the peers of each scenario one after the other, in rounds. Each round begins
// with another peer, so that whatever else the machine does affects all of them. A peer that
// fails is left out of that round. The error is that of ctx.
func measure(ctx context.Context, scenarios []scenario.Scenario, rounds int, stderr io.Writer) (measured, error) {
	m := measured{rounds: map[string]*figures.Rounds{}, seen: map[string]map[string][]int64{}}
	for _, s := range scenarios {
		m.rounds[s.Name] = &figures.Rounds{}
		m.seen[s.Name] = map[string][]int64{}
	}
	p := newProgress(stderr, scenarios, rounds)
	for round := range rounds {
		for _, s := range scenarios {
			first := round % len(s.Runs)
			for _, run := range slices.Concat(s.Runs[first:], s.Runs[:first]) {
				p.begin(round, s, run)
				result, err := run.Measure(ctx)
				switch {
				case ctx.Err() != nil:
					p.end("interrupted")
					return measured{}, fmt.Errorf("interrupted in step %d of %d: nothing was written", p.step, p.steps)
				case err != nil:
					p.end("failed")
					m.failures = append(m.failures, fmt.Errorf("%s in round %d of %s: %w", run.Peer, round+1, s.Name, err))
				default:
					p.end(summary(s.Columns, result.Figures))
					m.take(s.Name, run.Peer, round, result)
				}
			}
		}
	}
	return m, nil
}

func (m measured) take(scenario, peer string, round int, r scenario.Result) {
	m.rounds[scenario].Add(peer, round, r.Figures)
	if _, ok := m.seen[scenario][peer]; !ok {
		m.seen[scenario][peer] = r.Seen
	}
}

func (m measured) sections(scenarios []scenario.Scenario) []report.Section {
	var sections []report.Section
	for _, s := range scenarios {
		sections = append(sections, report.Section{Title: s.Title, Text: s.Text, Base: s.Base, Columns: s.Columns, Rounds: m.rounds[s.Name]})
	}
	return sections
}

// targets are those of the scenarios that were measured.
func (m measured) targets() []figures.Reached {
	var reached []figures.Reached
	for _, t := range scenario.Targets() {
		if r, ok := m.rounds[t.Scenario]; ok {
			reached = append(reached, t.Check(r))
		}
	}
	return reached
}

// plot is the picture of the contended scenario, or nil if that was not measured.
func (m measured) plot() *report.Plot {
	r, ok := m.rounds[scenario.Contended1000]
	if !ok || len(r.Peers()) == 0 {
		return nil
	}
	return &report.Plot{Limit: 1000, Interval: time.Second, Step: scenario.PlotStep, Seen: m.seen[scenario.Contended1000], Rounds: r}
}
