package docs_test

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// figuresFrom is the comment above a table whose figures are those of another page:
// the page, how the heading of its section begins, and what each column has there.
var figuresFrom = regexp.MustCompile(`^<!-- figures: ([A-Z]+\.md), (.+): ([^:]+) -->$`)

// TestFigures: the tables below such a comment have the figures of the page that it
// names, in the rows of the same names. A figure may be rounded.
func TestFigures(t *testing.T) {
	compared := map[string]int{}
	for _, p := range readPages(t) {
		for i, line := range p.lines {
			if strings.HasPrefix(line, "<!-- figures") {
				compared[filepath.Base(filepath.Dir(p.path))+"/"+filepath.Base(p.path)] += compareFigures(t, p, i)
			}
		}
	}
	for path, rows := range map[string]int{"../README.md": 5, "./comparison.md": 23} {
		if compared[path] < rows {
			t.Errorf("%s: %d rows of figures are compared, want %d", path, compared[path], rows)
		}
	}
}

var (
	linked     = regexp.MustCompile(`\[([^\]]*[0-9][^\]]*)\]\((?:\.\./)?([A-Z]+\.md)#([^)]+)\)`)
	linkedHere = regexp.MustCompile(`\[([0-9][0-9,.]*(?: %| [mu]?s)?)\]\(()#([a-z][^)]*)\)`)
	number     = regexp.MustCompile(`[0-9][0-9,]*(?:\.[0-9]+)?`)
)

// TestLinkedFigures: a figure that is a link to a section of a page of measurements, or to a table of the same page, is
// there, perhaps rounded. One with "about" is what half a core of Redis does with a cost
// there, in us.
func TestLinkedFigures(t *testing.T) {
	compared := 0
	for _, p := range readPages(t) {
		all := strings.Join(p.lines, "\n")
		for _, m := range slices.Concat(linked.FindAllStringSubmatch(all, -1), linkedHere.FindAllStringSubmatch(all, -1)) {
			compared++
			text := tablesOf(sectionOf(p, m[3]))
			if m[2] != "" {
				text = sectionOf(readPage(t, filepath.Join("..", m[2])), m[3])
			}
			there := number.FindAllString(text, -1)
			for _, figure := range number.FindAllString(m[1], -1) {
				same := func(source string) bool { return sameFigure(figure, source) }
				if strings.HasPrefix(m[1], "about ") {
					same = func(source string) bool { return isHalfACore(figure, source) }
				}
				if !slices.ContainsFunc(there, same) {
					t.Errorf("%s: %s: %s has no such figure in #%s", p.path, m[1], m[2], m[3])
				}
			}
		}
	}
	if compared < 20 {
		t.Errorf("%d links with figures, want 20", compared)
	}
}

// tablesOf are the rows of tables of a text.
func tablesOf(text string) string {
	var rows []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "|") {
			rows = append(rows, line)
		}
	}
	return strings.Join(rows, "")
}

var linkedToTest = regexp.MustCompile(`\[([^\]]*[0-9][^\]]*)\]\(((?:\.\./)?[a-z/_]+\.go)\)`)

// TestFiguresOfTests: a figure that is a link to a test, or to other code, is what it demands, takes or has. One in % may be a part of 1
// there.
func TestFiguresOfTests(t *testing.T) {
	compared := 0
	for _, p := range readPages(t) {
		for _, m := range linkedToTest.FindAllStringSubmatch(strings.Join(p.lines, "\n"), -1) {
			compared++
			source, err := os.ReadFile(filepath.Join(filepath.Dir(p.path), m[2]))
			if err != nil {
				t.Error(err)
				continue
			}
			there := number.FindAllString(string(source), -1)
			for _, figure := range number.FindAllString(m[1], -1) {
				wanted := parseFigure(figure)
				if !slices.ContainsFunc(there, func(s string) bool {
					n := parseFigure(s)
					return n == wanted || strings.HasSuffix(m[1], "%") && math.Round(1e6*n) == math.Round(1e4*wanted)
				}) {
					t.Errorf("%s: %s: %s has no %s", p.path, m[0], m[2], figure)
				}
			}
		}
	}
	if compared < 4 {
		t.Errorf("%d links with figures, want 4", compared)
	}
}

// sectionOf is the text of the section of a page with this anchor.
func sectionOf(p page, anchor string) string {
	var text []string
	inside := false
	for _, line := range p.lines {
		if m := heading.FindStringSubmatch(line); m != nil {
			inside = anchorOf(m[1]) == anchor
		}
		if inside {
			text = append(text, line)
		}
	}
	return strings.Join(text, "\n")
}

// isHalfACore tells whether so many a second need half a core, within a tenth, if each
// costs so many us.
func isHalfACore(perSecond, cost string) bool {
	n, us := parseFigure(perSecond), parseFigure(cost)
	return us > 0 && math.Abs(n*us/5e5-1) < 0.1
}

// parseFigure is a figure as a number, or NaN.
func parseFigure(s string) float64 {
	n, err := strconv.ParseFloat(strings.ReplaceAll(s, ",", ""), 64)
	if err != nil {
		return math.NaN()
	}
	return n
}

// compareFigures compares the table below a line of a page with its source, and
// returns how many rows it compared.
func compareFigures(t *testing.T, p page, line int) int {
	t.Helper()
	m := figuresFrom.FindStringSubmatch(p.lines[line])
	if m == nil {
		t.Errorf("%s: %s: not page, section: columns", p.path, p.lines[line])
		return 0
	}
	from, wanted, rows := m[1]+", "+m[2], strings.Split(m[3], "; "), tableBelow(p, line)
	source := section(readPage(t, filepath.Join("..", m[1])), m[2])
	if len(source) < 2 || len(rows) < 2 {
		t.Errorf("%s: %s: no table there, or none here", p.path, from)
		return 0
	}
	var columns []int
	for _, column := range wanted {
		c := slices.Index(source[0], column)
		if c < 0 {
			t.Errorf("%s: %s has no column %q", p.path, from, column)
			return 0
		}
		columns = append(columns, c)
	}
	for _, row := range rows[1:] {
		k := slices.IndexFunc(source, func(s []string) bool { return s[0] == row[0] })
		if k < 0 || len(row) != len(columns)+1 {
			t.Errorf("%s: %s has no row %q, or its columns are not %d", p.path, from, row[0], len(columns))
			continue
		}
		for i, c := range columns {
			if !sameFigure(row[i+1], source[k][c]) {
				t.Errorf("%s: %s, %s: the page has %s, the source %s", p.path, row[0], wanted[i], row[i+1], source[k][c])
			}
		}
	}
	return len(rows) - 1
}

// section is the first table of the section of a page whose heading begins so.
func section(p page, title string) [][]string {
	for i, line := range p.lines {
		if m := heading.FindStringSubmatch(line); m != nil && strings.HasPrefix(m[1], title) {
			return tableBelow(p, i)
		}
	}
	return nil
}

// tableBelow is the next table below a line: its cells, without what is in
// parentheses behind a figure (how many times the first row's) and without emphasis.
func tableBelow(p page, line int) [][]string {
	var rows [][]string
	for _, l := range p.lines[line+1:] {
		switch {
		case strings.HasPrefix(l, "#"), !strings.HasPrefix(l, "|") && rows != nil:
			return rows
		case !strings.HasPrefix(l, "|"), strings.HasPrefix(l, "| ---"):
			continue
		}
		cells := strings.Split(strings.Trim(l, "|"), "|")
		for i, cell := range cells {
			cell = strings.TrimSpace(cell)
			if i > 0 && rows != nil {
				cell, _, _ = strings.Cut(cell, " (")
			}
			cells[i] = cell
		}
		rows = append(rows, cells)
	}
	return rows
}

// sameFigure tells whether a page has a figure as its source has it, or rounded.
func sameFigure(page, source string) bool {
	if page == source {
		return true
	}
	_, decimals, _ := strings.Cut(page, ".")
	got, want := parseFigure(page), parseFigure(source)
	return got != 0 && !math.IsNaN(got) && strconv.FormatFloat(got, 'f', len(decimals), 64) == strconv.FormatFloat(want, 'f', len(decimals), 64)
}

// TestComparisonSources: each system of the comparison's table has a page that says
// so, and the day on which it did.
func TestComparisonSources(t *testing.T) {
	page, systems := readPage(t, "comparison.md"), []string{}
	for i, line := range page.lines {
		if !strings.HasPrefix(line, "## Job systems") {
			continue
		}
		for _, row := range tableBelow(page, i)[1:] {
			name, _, _ := strings.Cut(strings.TrimPrefix(row[0], "["), "]")
			systems = append(systems, name)
			if _, err := time.Parse(time.DateOnly, row[len(row)-1]); err != nil {
				t.Errorf("%s: when was that read? %v", name, err)
			}
			if !strings.HasPrefix(name, "jobthrottle") && !strings.Contains(row[0], "](https://") {
				t.Errorf("%s: no page that says so", name)
			}
		}
	}
	text := strings.Join(page.lines, "\n")
	for _, system := range []string{"BullMQ Pro", "Sidekiq Enterprise", "Inngest", "Hatchet", "Temporal", "River Pro"} {
		if !slices.Contains(systems, system) {
			t.Errorf("the table does not have %s", system)
		}
	}
	if !strings.Contains(text, "[ThrottleKit](https://") {
		t.Error("the page does not compare ThrottleKit")
	}
}

// TestReadmeModule: what the README tells to get is this module, and it asks for the
// Go that go.mod asks for.
func TestReadmeModule(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join("..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	module, _, _ := strings.Cut(strings.TrimPrefix(string(mod), "module "), "\n")
	_, version, _ := strings.Cut(string(mod), "\ngo ")
	version, _, _ = strings.Cut(version, "\n")
	readme, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\ngo get " + module + "/asynqlimit\n", "`go get " + module + "/throttle`", "Go " + strings.TrimSuffix(version, ".0") + ","} {
		if !strings.Contains(string(readme), want) {
			t.Errorf("the README does not say %q", want)
		}
	}
}
