package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/strictapi"
)

const (
	// besideBar is how many columns of the terminal a bar leaves free: for what is before it and
	// after it, and the last one, after which some terminals begin a new line.
	besideBar = 51

	shortestBar, longestBar = 10, 50
)

// view shows the demo while it runs. On a terminal it redraws a few lines, elsewhere it prints
// a line each second.
type view struct {
	screen
	jobs     int
	limit    int
	interval time.Duration
}

// screen is where a demo is shown.
type screen struct {
	out      io.Writer
	terminal bool
	drawn    int           // lines on the terminal that the next draw replaces
	next     time.Duration // when the next line is due
}

func newScreen(out io.Writer) screen {
	file, ok := out.(*os.File)
	return screen{out: out, terminal: ok && term.IsTerminal(int(file.Fd()))}
}

// due reports whether the next line is due, where there is no terminal.
func (s *screen) due(elapsed time.Duration) bool {
	if elapsed < s.next {
		return false
	}
	s.next = elapsed.Truncate(time.Second) + time.Second
	return true
}

// columns is how many characters fit into a line of the terminal; 0 if that is unknown.
func (s *screen) columns() int {
	file, ok := s.out.(*os.File)
	if !ok {
		return 0
	}
	columns, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// replace draws lines over those before, on a terminal. It cuts them to its width: a longer line
// would take two rows.
func (s *screen) replace(lines ...string) {
	width := s.columns()
	if width > 1 {
		width--
	}
	if s.drawn > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA", s.drawn)
	}
	for _, line := range lines {
		fmt.Fprintf(s.out, "\r%s\x1b[K\n", cli.Clip(line, width))
	}
	s.drawn = len(lines)
}

func newView(out io.Writer, jobs, limit int, interval time.Duration) *view {
	return &view{screen: newScreen(out), jobs: jobs, limit: limit, interval: interval}
}

// draw shows what the API has seen after this much time.
func (v *view) draw(elapsed time.Duration, r strictapi.Report) {
	if v.terminal {
		v.redraw(elapsed, r)
		return
	}
	if !v.due(elapsed) {
		return
	}
	fmt.Fprintf(v.out, "%5.1fs  %4d of %d jobs  %3d of %d in the last %v  busiest %d  refused %d\n",
		elapsed.Seconds(), len(r.Jobs), v.jobs, r.Now, v.limit, v.interval, r.Peak, r.Refused)
}

func (v *view) redraw(elapsed time.Duration, r strictapi.Report) {
	v.replace(
		fmt.Sprintf("  last %-4v %s  %d of %d allowed", v.interval, v.bar(r.Now, v.limit), r.Now, v.limit),
		fmt.Sprintf("  jobs      %s  %d of %d", v.bar(len(r.Jobs), v.jobs), len(r.Jobs), v.jobs),
		fmt.Sprintf("  %.1f s   busiest %d   refused %d   by worker: %s", elapsed.Seconds(), r.Peak, r.Refused, shares(r)),
	)
}

// bar fills up to its end as n nears full; more than full shows as full.
func (s *screen) bar(n, full int) string {
	width := longestBar
	if columns := s.columns(); columns > 0 {
		width = min(max(columns-besideBar, shortestBar), longestBar)
	}
	filled := min(n*width/full, width)
	return strings.Repeat("█", filled) + strings.Repeat("░", width-filled)
}

// shares lists how many requests each worker sent, always in the same order.
func shares(r strictapi.Report) string {
	workers := make([]string, 0, len(r.Workers))
	for worker := range r.Workers {
		workers = append(workers, worker)
	}
	slices.Sort(workers)
	counts := make([]string, len(workers))
	for i, worker := range workers {
		counts[i] = fmt.Sprint(r.Workers[worker].Requests)
	}
	return strings.Join(counts, " ")
}
