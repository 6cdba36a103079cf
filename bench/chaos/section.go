//go:build unix

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/check"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/fault"
	"github.com/jobthrottle/jobthrottle/bench/internal/report"
)

// section is what a run has to say, in Markdown.
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
		row("length", fmt.Sprintf("%v; %d runs of %v, seeds %d to %d", m.took.Round(time.Second),
			m.opts.seeds, m.opts.length, m.opts.seed, m.opts.seed+uint64(m.opts.seeds)-1))
		row("limit", fmt.Sprintf("%d in any %v, guard %v", mix.Limit.Permits, mix.Limit.Interval, mix.Limit.Guard))
		row("fleet", fmt.Sprintf("%d workers of %d slots", mix.Workers, mix.Slots))
		for _, fact := range report.Machine() {
			row(fact.Name, fact.Value)
		}
	})
}

// promise is a figure beside what was asked of it.
type promise struct {
	what, asked, measured string
	kept                  bool
}

func (m *measured) writePromises(b *strings.Builder) {
	report.Table(b, []string{"what", "asked", "measured", "kept"}, func(row func(...string)) {
		for _, p := range m.promises() {
			kept := "no"
			if p.kept {
				kept = "yes"
			}
			row(p.what, p.asked, p.measured, kept)
		}
	})
}

func (m *measured) promises() []promise {
	var promises []promise
	if len(m.results) > 0 {
		var above, lost, twice int
		var idle time.Duration
		var resumed, back []time.Duration
		busiest := m.results[0].Busiest
		for _, r := range m.results {
			above += r.Busiest.Above
			lost += len(r.Lost)
			twice += r.Twice
			idle += r.Idle
			busiest = worse(busiest, r.Busiest)
			for _, p := range r.Phases {
				resumed, back = append(resumed, p.Resumed), append(back, p.Back)
			}
		}
		promises = []promise{
			{"windows above the limit", "0", fmt.Sprintf("%d; the busiest held %s", above, window(busiest)), above == 0},
			{"jobs lost", "0", fmt.Sprintf("%d of %d", lost, m.jobs), lost == 0},
			{"after a fault, work resumes", "within 2 s", within(resumed, 2*time.Second), worst(resumed) <= 2*time.Second},
			{"after a fault, 95 % is used again", "within 5 s", within(back, 5*time.Second), worst(back) <= 5*time.Second},
			{"jobs done twice", "told", fmt.Sprint(twice), true},
			{"time in which nothing was used though jobs were waiting", "told", idle.Round(100 * time.Millisecond).String(), true},
		}
	}
	if len(m.crashes) > 0 {
		unused, later := 0, 0
		for _, c := range m.crashes {
			unused, later = max(unused, c.Unused), max(later, c.Later)
		}
		promises = append(promises,
			promise{fmt.Sprintf("a worker dies while its %d slots wait: permits that nobody uses", herd.Slots), fmt.Sprintf("at most its %d", herd.Slots),
				fmt.Sprintf("at most %d, in %d deaths", unused, len(m.crashes)), unused <= herd.Slots},
			promise{fmt.Sprintf("the same, later than %v after its death", horizon(herd.Limit)), "0", fmt.Sprintf("at most %d", later), later == 0})
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
			twice, busiest := 0, phases[0].Busiest
			for _, p := range phases {
				resumed, back = append(resumed, p.Resumed), append(back, p.Back)
				during, after = append(during, p.During), append(after, p.After)
				twice += p.Twice
				busiest = worse(busiest, p.Busiest)
			}
			row(f.What, fmt.Sprint(len(phases)), window(busiest), fmt.Sprint(twice), times(resumed), times(back), uses(during), uses(after))
		}
	})
	b.WriteString("Medians, and the worst in parentheses. A busiest window is the one that held most, compared with what was allowed in it.\n")
}

// phases are those of a fault in all runs.
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

// worse is the window that held more, compared with what was allowed.
func worse(a, b check.Window) check.Window {
	if cmp.Or(cmp.Compare(a.Arrivals-a.Limit, b.Arrivals-b.Limit), cmp.Compare(a.Limit, b.Limit)) < 0 {
		return b
	}
	return a
}

// worst is the longest time; one that is unknown is none.
func worst(times []time.Duration) time.Duration {
	return slices.Max(append([]time.Duration{check.Unknown}, times...))
}

// within says how long it took at the most, and how often longer than that.
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
