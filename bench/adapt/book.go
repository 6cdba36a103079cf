package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/jobthrottle/jobthrottle/bench/internal/report"
)

// book is what ADAPTIVE.md is made from.
type book struct {
	seeds  int
	kept   string         // the folder of results; empty: none is used
	only   *regexp.Regexp // the runs to make
	ours   contender
	parts  []part
	peers  map[string]results // with the APIs that do not change
	steady results
	rough  results
}

// part is some scenarios and the targets for them.
type part struct {
	all     []named
	targets []target
	results results
}

// run runs everything.
func (b *book) run(progress io.Writer) (err error) {
	b.parts = []part{
		{all: steady(), targets: steadyTargets()},
		{all: halved(), targets: halvedTargets()},
		{all: doubled(), targets: doubledTargets()},
		{all: shared(), targets: sharedTargets()},
		{all: failing(), targets: failingTargets()},
		{all: late(), targets: lateTargets()},
	}
	for i := range b.parts {
		p := &b.parts[i]
		if p.results, err = b.runPart(progress, p.targets[0].What, p.all, b.ours); err != nil {
			return err
		}
	}
	b.steady = b.parts[0].results
	if b.rough, err = b.runPart(progress, "requests that arrive scattered", scattered(), b.ours); err != nil {
		return err
	}
	b.peers = map[string]results{}
	for _, c := range peers() {
		if b.peers[c.Name], err = b.runPart(progress, c.Name, steady(), c); err != nil {
			return err
		}
	}
	return nil
}

// runPart runs scenarios, or takes their earlier results from the folder of results.
func (b *book) runPart(progress io.Writer, name string, all []named, c contender) (results, error) {
	whole := results{}
	for _, n := range all {
		title := name + ": " + n.Name
		if !b.only.MatchString(title) {
			continue
		}
		fmt.Fprintln(progress, title)
		r, err := b.runOne(title, n, c)
		if err != nil {
			return nil, err
		}
		whole[n.Name] = r
	}
	return whole, nil
}

func (b *book) runOne(title string, n named, c contender) (runs []figures, err error) {
	file := filepath.Join(b.kept, regexp.MustCompile(`[^a-zA-Z0-9]+`).ReplaceAllString(title, "-")+".json")
	if b.kept != "" {
		text, err := os.ReadFile(file)
		if err == nil {
			return runs, json.Unmarshal(text, &runs)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	r, err := runAll([]named{n}, c, b.seeds)
	if err != nil || b.kept == "" {
		return r[n.Name], err
	}
	text, err := json.Marshal(r[n.Name])
	if err != nil {
		return nil, err
	}
	return r[n.Name], os.WriteFile(file, text, 0o644)
}

// worstOf returns the worst median of a figure with the name of its scenario, and the worst
// seed of all with the name of its scenario.
func (p part) worstOf(t target) (name string, s spread, worst string) {
	worse := func(a, b float64) bool { return t.largest && a > b || !t.largest && a < b }
	var single spread
	for i, n := range p.all {
		x := over(p.results[n.Name], t.of, t.largest)
		if i == 0 || worse(x.Median, s.Median) {
			name, s = n.Name, x
		}
		if i == 0 || worse(x.Worst, single.Worst) {
			single, worst = x, n.Name
		}
	}
	s.Worst, s.Seed = single.Worst, single.Seed
	return name, s, worst
}

// totals counts all requests of a rule with the APIs that do not change.
func (r results) totals() (refused, accepted float64) {
	for _, runs := range r {
		for _, f := range runs {
			refused, accepted = refused+float64(f.Refused), accepted+float64(f.Accepted)
		}
	}
	return refused, accepted
}

const intro = `# Limits that find themselves, simulated

Written by ` + "`go run ./bench/adapt`" + `. It runs this module's rule itself
([learn.lua](throttle/internal/script/lua/learn.lua), as Redis runs it) in fake time, with APIs that never say their limit,
and beside it the rules of others, as their published sources describe them. No machine and no clock takes part: the same
seed gives the same figures. Each scenario is run with %d seeds; figures are medians, the worst seed in parentheses.

**APIs** allow 10 to 1000 requests a second, in any second (sliding), in each second of their own clock (fixed), or out of a
bucket that holds as many and leaks as many in a second (bucket). What they refuse does not count.
**Fleets** have 3 to 50 processes, and always four times as much to do as the API allows. A limit begins at a tenth of the
API's, and may rise to four times of it. A request is under way for 2.5 ms on average, up to 15; its reply comes
10 to 500 ms after it was sent, in one scenario up to 2 s after it. A window is a second.

`

const rules = `The others learn in each process alone:

- **AWS**: the adaptive mode of the SDKs, as botocore has it (botocore/retries/adaptive.py): no limit before the first
  refusal; each refusal multiplies the process's measured rate by 0.7, then it grows cubically; a refused request is
  tried again after a random part of 1, 2, 4 ... s.
- **Loki**: AIMD of its object storage clients (pkg/storage/chunk/client/congestion): half for each refusal, one more a second for
  each success. It begins at a tenth of the limit.
- **RudderStack**: the adaptive throttler of its router (router/throttler): above 10 % refused in a window the limit falls by 0.3
  of that share of its highest value, which is four times the API's; after two windows without refusal it rises by a tenth.

`

// write writes ADAPTIVE.md.
func (b *book) write(out io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, intro, b.seeds)
	text.WriteString("## Targets\n\nEach row has the API with the worst median, and the worst seed of all.\n\n")
	report.Table(&text, []string{"what", "target", "median", "worst seed", "reached"}, func(row func(...string)) {
		for _, p := range b.parts {
			for _, t := range p.targets {
				name, s, worst := p.worstOf(t)
				row(t.What, t.Want, fmt.Sprintf("%s (%s)", show(t, s.Median), name), fmt.Sprintf("%s (%s, seed %d)", show(t, s.Worst), worst, s.Seed), reached(t, s))
			}
		}
		refused, used, name := b.beside()
		row("refused, beside the others", "at least 5x fewer", fmt.Sprintf("%.1fx (%s)", refused, name), "-", yes(refused >= 5))
		row("used from window 20 on, beside the others", "no less", fmt.Sprintf("%.3fx of the best", used), "-", yes(used >= 1))
	})
	text.WriteString("![limits and refusals of the four rules](ADAPTIVE-steady.svg)\n\n![another client takes half of the limit](ADAPTIVE-changes.svg)\n\n")
	text.WriteString("## Each API\n\n")
	b.parts[0].table(&text)
	text.WriteString("## APIs that change, at 40/s\n\n")
	for _, p := range b.parts[1:] {
		p.table(&text)
	}
	text.WriteString("## Beside others\n\n")
	text.WriteString(rules)
	b.besideTable(&text)
	text.WriteString("## Where this rule is worse\n\n")
	b.worse(&text)
	_, err := io.WriteString(out, strings.TrimRight(text.String(), "\n")+"\n")
	return err
}

func show(t target, x float64) string {
	if math.IsInf(x, 0) {
		return "never"
	}
	return fmt.Sprintf(t.format, x)
}

func yes(ok bool) string {
	if ok {
		return "yes"
	}
	return "no"
}

func reached(t target, s spread) string {
	switch {
	case !t.reached(s.Median):
		return "no"
	case !t.reached(s.Worst):
		return "yes, not with every seed"
	}
	return "yes"
}

// table has a row for each scenario.
func (p part) table(text *strings.Builder) {
	head := []string{"API"}
	for _, t := range p.targets {
		head = append(head, t.What)
	}
	report.Table(text, head, func(row func(...string)) {
		for _, n := range p.all {
			cells := []string{n.Name}
			for _, t := range p.targets {
				s := over(p.results[n.Name], t.of, t.largest)
				cells = append(cells, fmt.Sprintf("%s (%s, seed %d)", show(t, s.Median), show(t, s.Worst), s.Seed))
			}
			row(cells...)
		}
	})
}

// beside compares our rule with the others: how many times fewer refusals we have than the best
// of them, how much of the limits we use, on average, as a part of what the best of them uses,
// and the name of the one with the fewest refusals.
func (b *book) beside() (refused, used float64, name string) {
	ours, _ := b.steady.totals()
	refused, used = math.Inf(1), math.Inf(1)
	for _, c := range peers() {
		theirs, _ := b.peers[c.Name].totals()
		if x := theirs / max(ours, 1); x < refused {
			refused, name = x, c.Name
		}
		used = min(used, b.steady.used()/b.peers[c.Name].used())
	}
	return refused, used, name
}

// used is how much of the limits is used from window 20 on: the mean over the APIs.
func (r results) used() (mean float64) {
	for _, name := range slices.Sorted(maps.Keys(r)) { // in order, because the sum of fractions depends on it
		mean += over(r[name], func(f figures) float64 { return f.Used }, false).Median / float64(len(r))
	}
	return mean
}

func (b *book) besideTable(text *strings.Builder) {
	report.Table(text, []string{"rule", "requests accepted", "refused", "refused for one of ours"}, func(row func(...string)) {
		ourRefused, ourUsed := b.steady.totals()
		row(b.ours.Name, fmt.Sprintf("%.0f", ourUsed), fmt.Sprintf("%.0f", ourRefused), "1")
		for _, c := range peers() {
			r, u := b.peers[c.Name].totals()
			row(c.Name, fmt.Sprintf("%.0f (%.3fx)", u, u/ourUsed), fmt.Sprintf("%.0f", r), fmt.Sprintf("%.1f", r/max(ourRefused, 1)))
		}
	})
	report.Table(text, []string{"API", "refused: ours", "AWS", "Loki", "RudderStack", "used: ours", "AWS", "Loki", "RudderStack"}, func(row func(...string)) {
		for _, n := range b.parts[0].all {
			cells := []string{n.Name}
			part := func(f figures) float64 { return 100 * float64(f.Refused) / float64(max(f.Refused+f.Accepted, 1)) }
			used := func(f figures) float64 { return 100 * f.Used }
			cells = append(cells, fmt.Sprintf("%.2f %%", over(b.steady[n.Name], part, true).Median))
			for _, c := range peers() {
				cells = append(cells, fmt.Sprintf("%.2f %%", over(b.peers[c.Name][n.Name], part, true).Median))
			}
			cells = append(cells, fmt.Sprintf("%.1f %%", over(b.steady[n.Name], used, false).Median))
			for _, c := range peers() {
				cells = append(cells, fmt.Sprintf("%.1f %%", over(b.peers[c.Name][n.Name], used, false).Median))
			}
			row(cells...)
		}
	})
}

// worse names what others do better, and what this rule does badly.
func (b *book) worse(text *strings.Builder) {
	used := func(f figures) float64 { return 100 * f.Used }
	for _, c := range peers() {
		var where []string
		for _, n := range b.parts[0].all {
			ours, theirs := over(b.steady[n.Name], used, false).Median, over(b.peers[c.Name][n.Name], used, false).Median
			if theirs > ours+0.1 {
				where = append(where, fmt.Sprintf("%s (%.1f %% against %.1f %%)", n.Name, theirs, ours))
			}
		}
		if len(where) > 0 {
			fmt.Fprintf(text, "- %s uses more of the limit with: %s.\n", c.Name, strings.Join(where, "; "))
		}
	}
	share := func(f figures) float64 { return 100 * float64(f.Refused) / float64(max(f.Refused+f.Accepted, 1)) }
	for _, c := range peers() {
		var where []string
		for _, n := range b.parts[0].all {
			ours, theirs := over(b.steady[n.Name], share, true).Median, over(b.peers[c.Name][n.Name], share, true).Median
			if theirs < 5*ours {
				where = append(where, fmt.Sprintf("%s (%.2f %% against %.2f %%)", n.Name, theirs, ours))
			}
		}
		if len(where) > 0 {
			fmt.Fprintf(text, "- %s has less than five times as many refusals with: %s.\n", c.Name, strings.Join(where, "; "))
		}
	}
	_, ours := b.steady.totals()
	for _, c := range peers() {
		if _, theirs := b.peers[c.Name].totals(); theirs > ours {
			fmt.Fprintf(text, "- %s gets %.3fx as many requests through in all: it begins with its highest limit, this rule with a tenth of the API's.\n", c.Name, theirs/ours)
		}
	}
	for _, p := range b.parts {
		for _, t := range p.targets {
			for _, n := range p.all {
				if s := over(p.results[n.Name], t.of, t.largest); !t.reached(s.Median) {
					fmt.Fprintf(text, "- It misses its target with %s: %s, %s; want %s.\n", n.Name, t.What, show(t, s.Median), t.Want)
				}
			}
		}
	}
	text.WriteString("- When more becomes free, the others use it within some windows, for they never stop asking for more; this rule waits for its next probe, up to 20 windows: the second picture.\n")
	text.WriteString("- Requests that are under way for very different times arrive closer together than they were sent, which no limit can prevent. With 26 ms\n  on average, and an API of 40/s:\n\n")
	part{all: scattered(), targets: steadyTargets(), results: b.rough}.table(text)
}
