package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/internal/figures"
)

func TestNumber(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 1: "1", 40: "40", 1000: "1,000", 1234567.8: "1,234,568", 999.6: "1,000", 100.4: "100",
		0.0412: "0.0412", 0.98765: "0.988", 4.038: "4.04", 58.12: "58.1", -0.5: "-0.5", -1234.4: "-1,234",
		math.Inf(1): "-", math.NaN(): "-",
	} {
		if got := number(x); got != want {
			t.Errorf("number(%v) is %q, want %q", x, got, want)
		}
	}
}

func TestTimes(t *testing.T) {
	for x, want := range map[float64]string{0: "0x", 0.002: "1/500", 0.5: "0.5x", 1: "1x", 127.3: "127x"} {
		if got := times(x); got != want {
			t.Errorf("times(%v) is %q, want %q", x, got, want)
		}
	}
}

// example is a report of two rounds of two peers.
func example() Report {
	var r figures.Rounds
	for round := range 2 {
		r.Add("them", round, figures.Figures{figures.CPUPerPermit: 80, figures.Jain: 0.5})
		r.Add("us", round, figures.Figures{figures.CPUPerPermit: 8, figures.Jain: 1, figures.Busiest: 1000})
	}
	target := func(t figures.Target) figures.Reached { return t.Check(&r) }
	return Report{
		Date:    time.Date(2026, 11, 21, 23, 0, 0, 0, time.UTC),
		Took:    90*time.Second + 400*time.Millisecond,
		Rounds:  2,
		Machine: []Fact{{"Redis", "7.0.15"}},
		Notes:   []string{"A note."},
		Plot:    "plot.svg",
		Targets: []figures.Reached{
			target(figures.Target{What: "CPU", Metric: figures.CPUPerPermit, Peer: "us", To: "them", Bound: 1. / 8}),
			target(figures.Target{What: "more CPU", Metric: figures.CPUPerPermit, Peer: "us", To: "them", AtLeast: true, Bound: 8}),
			target(figures.Target{What: "busiest", Metric: figures.Busiest, Peer: "us", Bound: 1000}),
			target(figures.Target{What: "others", Metric: figures.Busiest, Peer: "others", Bound: 1000}),
		},
		Sections: []Section{{
			Title: "Contended", Text: "What is done.", Base: "us",
			Columns: []figures.Metric{figures.CPUPerPermit, figures.Busiest, figures.Jain}, Rounds: &r,
		}},
	}
}

func TestWriteMarkdown(t *testing.T) {
	var out strings.Builder
	if err := example().WriteMarkdown(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2 rounds, medians",
		"\n**A note.**\n",
		"| date   | 2026-11-21 |\n| length | 1m30s      |\n| Redis  | 7.0.15     |\n",
		"](plot.svg)\n",
		"| what     | target        | measured     | reached |\n" +
			"| -------- | ------------- | ------------ | ------- |\n" +
			"| CPU      | at most 1/8   | 1/10         | yes     |\n" +
			"| more CPU | at least 8x   | 0.1x         | no      |\n" +
			"| busiest  | at most 1,000 | 1,000        | yes     |\n" +
			"| others   | at most 1,000 | not measured | -       |\n",
		"\n## Contended\n\nWhat is done.\n\n" +
			"|      | Redis CPU per permit, us | busiest window | Jain, clients |\n" +
			"| ---- | ------------------------ | -------------- | ------------- |\n" +
			"| us   | 8                        | 1,000          | 1             |\n" +
			"| them | 80 (10x)                 | -              | 0.5           |\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks\n%s\nit is\n%s", want, out.String())
		}
	}
}

// A report of a run in which nothing could be measured says so in its notes
// and has empty tables.
func TestWriteMarkdownOfNothing(t *testing.T) {
	r := Report{Rounds: 1, Sections: []Section{{Title: "Drain", Columns: []figures.Metric{figures.Seconds}, Rounds: &figures.Rounds{}}}}
	var out strings.Builder
	if err := r.WriteMarkdown(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 round,", "## Drain"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q: %s", want, out.String())
		}
	}
	for _, not := range []string{"Targets", "!["} {
		if strings.Contains(out.String(), not) {
			t.Errorf("the report has %q: %s", not, out.String())
		}
	}
}

func TestWriteSVG(t *testing.T) {
	r := example().Sections[0].Rounds
	for round := range 2 {
		r.Add("us", round, figures.Figures{figures.CPUPerPermit: 8, figures.CallsPerPermit: 0.04})
		r.Add("them", round, figures.Figures{figures.CPUPerPermit: 80, figures.CallsPerPermit: 4})
	}
	p := Plot{
		Limit: 1000, Interval: time.Second, Step: 500 * time.Millisecond, Rounds: r,
		Seen: map[string][]int64{"us": {0, 1000, 1000}, "them": {0, 1300, 1700}},
	}
	var out bytes.Buffer
	if err := p.WriteSVG(&out); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for d := xml.NewDecoder(&out); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not XML: %v", err)
		}
		if text, ok := token.(xml.CharData); ok {
			texts = append(texts, strings.TrimSpace(string(text)))
		}
	}
	all := strings.Join(texts, "\n")
	for _, want := range []string{"us", "them", "the limit, 1000", "0.04", "80", "1,500"} {
		if !strings.Contains(all, want) {
			t.Errorf("the plot lacks the text %q: %s", want, all)
		}
	}
}

func TestWriteSVGOfNothing(t *testing.T) {
	p := Plot{Limit: 1, Interval: time.Second, Step: time.Second, Rounds: &figures.Rounds{}}
	if err := p.WriteSVG(io.Discard); err == nil || !strings.Contains(err.Error(), string(figures.CallsPerPermit)) {
		t.Errorf("%v, want an error that says which figure is missing", err)
	}
}

func TestMachine(t *testing.T) {
	facts := map[string]string{}
	for _, f := range Machine() {
		facts[f.Name] = f.Value
	}
	for _, name := range []string{"CPU", "Go"} {
		if facts[name] == "" {
			t.Errorf("no %s in %v", name, facts)
		}
	}
}
