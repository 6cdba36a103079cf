package main

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestBadLinesOfStrangers: what enqueue quotes of a bad line is one line, and no
// terminal takes a command from it.
func TestBadLinesOfStrangers(t *testing.T) {
	addr := redistest.Start(t)
	const hostile = "a\nFORGED\x1b[2J\u009b2J\u202e\u2028"
	quoted, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{
		`{"type":"x",` + string(quoted) + `:1}`,
		`{"type":"x","id":` + string(quoted) + `}`,
		`{"type":"x","max_retry":` + string(quoted) + `}`,
		`{"type":"x","max_retry":"` + "\u009b2J\u202e" + `"}`,
		`{"type":"x","timeout":"` + "\x7f\u202e" + `"}`,
		`{"type":"x","timeout":["a` + "\x0c" + `"]}`,
		"{\"type\":\"x\",\r\u0085:1}",
	}
	for _, strict := range []bool{false, true} {
		args := []string{"--redis", addr, "--file", "-"}
		if strict {
			args = append(args, "--strict")
		}
		got := enqueueWith(t, strings.NewReader(strings.Join(lines, "\n")), args...)
		got.want(t, cli.Failed, "line 1: ", "line 7: ", "line 2: id: ", `FORGED\x1b[2J`)
		shown := strings.Split(strings.TrimSuffix(got.stderr, "\n"), "\n")
		if len(shown) != len(lines)+1 {
			t.Errorf("%d lines for %d bad ones and the end:\n%q", len(shown), len(lines), got.stderr)
		}
		for _, line := range shown {
			if strings.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) || r == 0x202e || r == 0x2028 }) {
				t.Errorf("acts: %q", line)
			}
		}
	}
	for _, args := range [][]string{{"--file", hostile}, {"--type", "x", "--payload", hostile}, {"--config", hostile, "--type", "x"}, {"--redis", hostile, "--type", "x"}, {"--redis", addr, hostile}} {
		got := enqueueWith(t, strings.NewReader(""), args...)
		if strings.Count(got.stderr, "\n") != 1 || strings.ContainsAny(got.stderr, "\x1b\u009b\u202e") {
			t.Errorf("%q: %q", args, got.stderr)
		}
	}
}
