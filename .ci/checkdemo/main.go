// Command checkdemo reads what `worker --demo --json` wrote and fails unless
// its last line says that the limit held and no time was lost.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// slack is how much longer than the ideal the demo may take.
const slack = 1.10

func main() {
	if err := check(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "checkdemo:", err)
		os.Exit(1)
	}
	fmt.Println("demo: as it should be")
}

func check(in io.Reader) error {
	var last string
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		last = lines.Text()
	}
	if err := lines.Err(); err != nil {
		return err
	}
	var s struct {
		Jobs, Done, Failed, Limit, Peak, Refused *int
		Seconds                                  *float64
		IdealSeconds                             *float64 `json:"ideal_seconds"`
		IntervalMS                               *int64   `json:"interval_ms"`
	}
	decoder := json.NewDecoder(strings.NewReader(last))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		return fmt.Errorf("last line %q is not the summary: %w", last, err)
	}
	if s.Jobs == nil || s.Done == nil || s.Failed == nil || s.Limit == nil || s.Peak == nil || s.Refused == nil ||
		s.Seconds == nil || s.IdealSeconds == nil || s.IntervalMS == nil {
		return fmt.Errorf("summary %s lacks a key", last)
	}
	var wrong []error
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	expect(*s.Jobs >= 300, "%d jobs, want at least 300", *s.Jobs)
	expect(*s.Done == *s.Jobs, "%d of %d jobs done", *s.Done, *s.Jobs)
	expect(*s.Failed == 0, "%d jobs failed", *s.Failed)
	expect(*s.Refused == 0, "%d requests refused", *s.Refused)
	expect(*s.Peak <= *s.Limit, "%d requests within %d ms, the limit is %d", *s.Peak, *s.IntervalMS, *s.Limit)
	expect(*s.Seconds >= 5, "it took %.2f s, want at least 5 s", *s.Seconds)
	expect(*s.Seconds <= slack**s.IdealSeconds, "it took %.2f s, more than %.2f of the ideal %.2f s", *s.Seconds, slack, *s.IdealSeconds)
	return errors.Join(wrong...)
}
