package main

import (
	"io"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"

	"github.com/jobthrottle/jobthrottle/internal/hiddenapi"
	"github.com/jobthrottle/jobthrottle/internal/strictapi"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

var controls = regexp.MustCompile("\x1b\\[[0-9]*[A-Z]|\r")

// shownOn returns the lines that draw shows on a terminal of so many columns, without control
// sequences.
func shownOn(t *testing.T, columns uint16, draw func(screen)) []string {
	t.Helper()
	reader, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer tty.Close()
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: columns}); err != nil {
		t.Fatal(err)
	}
	const end = "the end"
	shown := make(chan string, 1)
	go func() {
		var all strings.Builder
		for chunk := make([]byte, 4096); !strings.Contains(all.String(), end); {
			n, err := reader.Read(chunk)
			all.Write(chunk[:n])
			if err != nil {
				break
			}
		}
		shown <- all.String()
	}()
	draw(newScreen(tty))
	if _, err := io.WriteString(tty, end); err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(controls.ReplaceAllString(<-shown, ""), end)
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// TestNarrowTerminal: each line of the demos takes one row of a terminal, however narrow, so that
// the next draw goes back to the first of them. On 80 columns nothing of the bars' lines is cut off.
func TestNarrowTerminal(t *testing.T) {
	for _, columns := range []uint16{1, 2, 20, 40, 60, 80, 100, 200} {
		demo := shownOn(t, columns, func(on screen) {
			v := &view{screen: on, jobs: 360, limit: 50, interval: time.Second}
			v.draw(time.Second, strictapi.Report{Now: 50, Jobs: map[string]int{"1": 1}})
		})
		adaptive := shownOn(t, columns, func(on screen) {
			s := &search{screen: on, hidden: theHidden(), takes: 20, limit: 20, halved: 40}
			s.saw(0, 0)
			s.draw(time.Second, hiddenapi.Report{Accepted: 600}, operate.Learnt{Limit: 20, Recovers: true})
		})
		if len(demo) != 3 || len(adaptive) != 4 {
			t.Errorf("%d columns: %q and %q", columns, demo, adaptive)
		}
		for _, line := range append(demo, adaptive...) {
			if n := utf8.RuneCountInString(line); n > max(int(columns)-1, 1) {
				t.Errorf("%d characters on a terminal of %d columns: %q", n, columns, line)
			}
		}
		if whole := strings.Join(append(demo[:2], adaptive[:3]...), ""); columns >= 80 && (strings.Contains(whole, "…") || !strings.Contains(whole, "20; the API takes 20, half of before")) {
			t.Errorf("cut off on %d columns: %q and %q", columns, demo, adaptive)
		}
	}
}
