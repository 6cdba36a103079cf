package main

import (
	"math"
	"path/filepath"

	"github.com/jobthrottle/jobthrottle/bench/internal/report"
	"github.com/jobthrottle/jobthrottle/internal/hiddenapi"
)

// drawAll draws the pictures, all with seed 1.
func (b *book) drawAll(out string) error {
	s := scenario{Kind: hiddenapi.Sliding, Cap: 100, Workers: 10, Windows: 100}
	if err := draw(filepath.Join(out, "ADAPTIVE-steady.svg"), "Ten processes, an API that allows 100 in any second and does not say so",
		s, append([]contender{b.ours}, peers()...)); err != nil {
		return err
	}
	return b.drawChanges(filepath.Join(out, "ADAPTIVE-changes.svg"))
}

// drawChanges draws a run in which another client comes and goes.
func (b *book) drawChanges(name string) error {
	s := scenario{Kind: hiddenapi.Sliding, Cap: 40, Workers: 10, Windows: 100, Change: changed, Other: 20e9}
	return draw(name, "Another client takes half of 40 a second from second 40 to 60", s, append([]contender{b.ours}, peers()...))
}

// draw draws a run of each rule.
func draw(name, title string, s scenario, rules []contender) error {
	c := report.Course{Title: title, Step: window, Most: 2 * float64(s.Cap)}
	for i := range s.Windows {
		c.Cap = append(c.Cap, s.capAt(i))
	}
	for _, r := range rules {
		w, err := run(s, 1, r.With)
		if err != nil {
			return err
		}
		line := report.Line{Name: r.Name}
		for _, x := range w.seen {
			limit := x.Limit
			if limit == 0 { // it has none yet
				limit = math.Inf(1)
			}
			line.Limit, line.Refused = append(line.Limit, limit), append(line.Refused, float64(x.Refused))
		}
		c.Lines = append(c.Lines, line)
	}
	return writeFile(name, c.WriteSVG)
}
