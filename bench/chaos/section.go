//go:build unix

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/check"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/fault"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/site"
	"github.com/jobthrottle/jobthrottle/bench/internal/report"
)

// section is the report of the runs, in Markdown.
func (m *measured) section() string {
	var b strings.Builder
	if m.opts.partial() {
		b.WriteString("**A partial run.**\n\n")
	}
	for _, failure := range m.failures {
		fmt.Fprintf(&b, "**Failed, and left out: %s**\n\n", strings.ReplaceAll(failure.Error(), "\n", " "))
	}
	m.writeFacts(&b)
	m.writePromises(&b)
	if len(m.results) > 0 {
		m.writeFaults(&b)
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func (m *measured) writeFacts(b *strings.Builder) {
	report.Table(b, []string{"", ""}, func(row func(...string)) {
		row("date", m.began.UTC().Format(time.DateOnly))
		row("length", m.took.Round(time.Second).String())
		if n := len(m.seeds); n > 0 {
			row("runs", fmt.Sprintf("%d of %v, seeds %d to %d", n, m.opts.length, m.seeds[0], m.seeds[n-1]))
			row("their fleet and limit", ofPlan(mix))
		}
		if n := len(m.crashes); n > 0 {
			row("deaths of a worker", fmt.Sprint(n))
			row("their fleet and limit", ofPlan(herd)+", spread evenly")
		}
		for _, fact := range report.Machine() {
			row(fact.Name, fact.Value)
		}
	})
}

func ofPlan(p site.Plan) string {
	return fmt.Sprintf("%d workers of %d slots, beside which %d jobs may wait; %d in any %v, guard %v",
		p.Workers, p.Slots, p.Waiting, p.Limit.Permits, p.Limit.Interval, p.Limit.Guard)
}

// promise is a measured figure and its target.
type promise struct{ what, asked, measured, kept string }

func (m *measured) writePromises(b *strings.Builder) {
	report.Table(b, []string{"what", "target", "measured", "kept"}, func(row func(...string)) {
		for _, p := range m.promises() {
			row(p.what, p.asked, p.measured, p.kept)
		}
	})
}

// kept says whether a promise was kept.
func kept(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func (m *measured) promises() []promise {
	var promises []promise
	if len(m.results) > 0 {
		var above, lost, twice int
		var idle time.Duration
		var resumed, back []time.Duration
		var busiest check.Window
		for _, r := range m.results {
			above += r.Busiest.Above
			lost += len(r.Lost)
			twice += r.Twice
			idle += r.Idle
			if r.Busiest.Worse(busiest) {
				busiest = r.Busiest
			}
			for _, p := range r.Phases {
				resumed, back = append(resumed, p.Resumed), append(back, p.Back)
			}
		}
		promises = []promise{
			{"windows above the limit", "0", fmt.Sprintf("%d; the busiest held %s", above, window(busiest)), kept(above == 0)},
			{"jobs lost", "0", fmt.Sprintf("%d of %d", lost, m.jobs), kept(lost == 0)},
			{"after a fault, work resumes", "within 2 s", within(resumed, 2*time.Second), kept(worst(resumed) <= 2*time.Second)},
			{"after a fault, 95 % is used again", "within 5 s", within(back, 5*time.Second), kept(worst(back) <= 5*time.Second)},
			{"jobs done twice", "told", fmt.Sprint(twice), "-"},
			{"time in which nothing was used though jobs were waiting", "told", idle.Round(100 * time.Millisecond).String(), "-"},
		}
	}
	if len(m.crashes) > 0 {
		unused, later := 0, 0
		for _, c := range m.crashes {
			unused, later = max(unused, c.Unused), max(later, c.Later)
		}
		promises = append(promises,
			promise{fmt.Sprintf("a worker dies while its %d slots wait: permits that nobody uses", herd.Slots), fmt.Sprintf("at most its %d", herd.Slots),
				fmt.Sprintf("at most %d, in %d deaths", unused, len(m.crashes)), kept(unused <= herd.Slots)},
			promise{fmt.Sprintf("the same, later than %v after its death", horizon(herd.Limit)), "0", fmt.Sprintf("at most %d", later), kept(later == 0)})
	}
	return promises
}

func (m *measured) writeFaults(b *strings.Builder) {
	heads := []string{"fault", "times", "busiest window", "done twice", "resumed after", "95 % used after", "used meanwhile", "used 5 s after"}
	report.Table(b, heads, func(row func(...string)) {
		for _, f := range fault.All() {
			phases := m.phases(f.Name)
			if len(phases) == 0 {
				continue
			}
			var resumed, back []time.Duration
			var during, after []float64
			var twice int
			var busiest check.Window
			for _, p := range phases {
				resumed, back = append(resumed, p.Resumed), append(back, p.Back)
				during, after = append(during, p.During), append(after, p.After)
				twice += p.Twice
				if p.Busiest.Worse(busiest) {
					busiest = p.Busiest
				}
			}
			row(f.What, fmt.Sprint(len(phases)), window(busiest), fmt.Sprint(twice), times(resumed), times(back), uses(during), uses(after))
		}
	})
	b.WriteString("Medians, and the worst in parentheses. A busiest window is the one that held most, compared with what was allowed in it. Jobs done twice\n" +
		"are those until the end of a run. asynq brings most jobs of a killed worker back later than that, after 1 to 2 minutes.\n")
}

// phases are the phases of a fault in all runs.
func (m *measured) phases(name string) []check.Figures {
	var phases []check.Figures
	for _, r := range m.results {
		for _, p := range r.Phases {
			if p.Fault == name {
				phases = append(phases, p)
			}
		}
	}
	return phases
}

// worst is the longest time; unknown times do not count.
func worst(times []time.Duration) time.Duration {
	return slices.Max(append([]time.Duration{check.Unknown}, times...))
}

// within says how long it took at most, and how often longer than the bound.
func within(times []time.Duration, bound time.Duration) string {
	longer := 0
	for _, t := range times {
		if t > bound {
			longer++
		}
	}
	text := "at most " + seconds(worst(times))
	if longer > 0 {
		text += fmt.Sprintf("; %d of %d longer", longer, len(times))
	}
	return text
}
