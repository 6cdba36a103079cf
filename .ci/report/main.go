// Command report reads what `go test -json` writes, shows of it what go test shows
// without -v, and appends to a file which tests were skipped, and why, and which
// packages and tests took longest:
//
//	go test -json ./... | go run ./.ci/report FILE
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// longest is how many packages and tests are told of those that took longest.
const longest = 10

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go test -json ... | report FILE")
		os.Exit(2)
	}
	if err := run(os.Stdin, os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer, path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	r := &report{out: out, output: map[test][]string{}, ended: map[string]bool{}}
	err = r.read(in)
	r.summarize(file)
	return cmp.Or(err, file.Close())
}

// event is a line of go test -json.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64
	Output  string
}

// test names a test, or a package if it has no name.
type test struct{ pkg, name string }

func (t test) String() string { return strings.TrimSpace(t.pkg + " " + t.name) }

type timing struct {
	test
	seconds float64
}

type skip struct {
	test
	reason string
}

type report struct {
	out    io.Writer
	output map[test][]string // of what has not ended yet
	ended  map[string]bool   // packages whose end go test has told
	passed int               // tests, with those below them
	failed int
	skips  []skip
	timing []timing
}

func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			r.line(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) line(line string) {
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		fmt.Fprint(r.out, line) // of the go command itself
		return
	}
	t := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.add(t, e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.packageEnded(t, e)
		} else {
			r.testEnded(t, e)
		}
	}
}

// add keeps what a test prints until it is known whether it failed. The lines that
// say how a package ended are shown as they come.
func (r *report) add(t test, output string) {
	if t.name == "" && verdict.MatchString(output) {
		fmt.Fprint(r.out, output)
		r.ended[t.pkg] = true
		return
	}
	if !chatter.MatchString(output) {
		r.output[t] = append(r.output[t], output)
	}
}

var (
	verdict = regexp.MustCompile(`^(ok  |\?   |FAIL|---)\t|^FAIL$`)
	chatter = regexp.MustCompile(`^(=== (RUN|PAUSE|CONT|NAME) |PASS\n$)`)
)

func (r *report) testEnded(t test, e event) {
	switch e.Action {
	case "pass":
		r.passed++
	case "fail":
		r.failed++
		r.show(t)
	case "skip":
		r.skips = append(r.skips, skip{t, reason(r.output[t])})
	}
	delete(r.output, t)
	if !strings.Contains(t.name, "/") {
		r.timing = append(r.timing, timing{t, e.Elapsed})
	}
}

// packageEnded shows of a package that failed what belongs to no test, or to a test
// that has not ended: a panic, a race, the end of the time.
func (r *report) packageEnded(t test, e event) {
	for of := range r.output {
		if of.pkg != t.pkg {
			continue
		}
		if e.Action == "fail" {
			r.show(of)
		}
		delete(r.output, of)
	}
	if !r.ended[t.pkg] { // a test program that did not run under go test
		fmt.Fprintf(r.out, "%-4s\t%s\t%.3fs\n", map[string]string{"pass": "ok", "fail": "FAIL", "skip": "?"}[e.Action], t.pkg, e.Elapsed)
	}
	r.timing = append(r.timing, timing{t, e.Elapsed})
}

func (r *report) show(t test) {
	for _, line := range r.output[t] {
		fmt.Fprint(r.out, line)
	}
}

// position is what the testing package puts before what a test says.
var position = regexp.MustCompile(`^\s*\w+\.go:\d+: `)

func reason(output []string) string {
	var said []string
	for _, line := range output {
		if line = strings.TrimSpace(position.ReplaceAllString(line, "")); line != "" && !strings.HasPrefix(line, "--- SKIP") {
			said = append(said, line)
		}
	}
	return strings.Join(said, " ")
}

func (r *report) summarize(out io.Writer) {
	fmt.Fprintf(out, "%d tests passed, %d failed, %d were skipped\n", r.passed, r.failed, len(r.skips))
	for _, s := range r.skips {
		fmt.Fprintf(out, "  skipped %s: %s\n", s.test, s.reason)
	}
	slices.SortStableFunc(r.timing, func(a, b timing) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, kind := range []struct {
		title   string
		matches func(test) bool
	}{
		{"packages", func(t test) bool { return t.name == "" }},
		{"tests", func(t test) bool { return t.name != "" }},
	} {
		var top []string
		for _, t := range r.timing {
			if kind.matches(t.test) && len(top) < longest {
				top = append(top, fmt.Sprintf("  %7.1fs %s\n", t.seconds, t.test))
			}
		}
		if len(top) > 0 {
			fmt.Fprintf(out, "the %s that took longest\n%s", kind.title, strings.Join(top, ""))
		}
	}
}
