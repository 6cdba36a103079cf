package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// terminalRun is the command run on a terminal of its own, and what that shows.
type terminalRun struct {
	t      *testing.T
	keys   *os.File // what is typed goes in here
	status chan int

	mu    sync.Mutex
	shown bytes.Buffer
	more  chan struct{} // has a token after something was shown
}

// onTerminal runs the command with a terminal as its standard streams.
func onTerminal(ctx context.Context, t *testing.T, args ...string) *terminalRun {
	t.Helper()
	keys, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: 120}); err != nil {
		t.Fatal(err)
	}
	r := &terminalRun{t: t, keys: keys, status: make(chan int, 1), more: make(chan struct{}, 1)}
	var command, reader sync.WaitGroup
	reader.Go(func() { _, _ = io.Copy(r, keys) }) // until the terminal is closed
	command.Go(func() { r.status <- cli.Run(ctx, newCommand(), args, tty, tty, tty) })
	t.Cleanup(func() {
		command.Wait()
		tty.Close() // not before: what was not read by then is lost
		reader.Wait()
		keys.Close()
	})
	return r
}

// Write records what the terminal shows.
func (r *terminalRun) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
	return r.shown.Write(p)
}

func (r *terminalRun) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shown.String()
}

// await waits until the terminal has shown this.
func (r *terminalRun) await(text string) {
	r.t.Helper()
	timeout := time.After(20 * time.Second)
	for !strings.Contains(r.text(), text) {
		select {
		case <-r.more:
		case <-timeout:
			r.t.Fatalf("not shown within 20s: %q\n%q", text, r.text())
		}
	}
}

func (r *terminalRun) press(keys string) {
	r.t.Helper()
	if _, err := r.keys.WriteString(keys); err != nil {
		r.t.Fatal(err)
	}
}

// ended waits for the end of the command, which has to have this status.
func (r *terminalRun) ended(status int) {
	r.t.Helper()
	select {
	case got := <-r.status:
		if got != status {
			r.t.Errorf("status %d, want %d:\n%s", got, status, r.text())
		}
	case <-time.After(20 * time.Second):
		r.t.Fatalf("it did not end within 20s:\n%s", r.text())
	}
}

func TestConfirmation(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		status       int
		changed      bool
	}{
		{"yes", "yes\n", cli.Done, true},
		{"in capitals", " YES \n", cli.Done, true},
		{"no", "no\n", cli.Failed, false},
		{"only a key", "\n", cli.Failed, false},
		{"end of input", "\x04", cli.Failed, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t)
			s.limiter("api", perHour(100), 30)
			r := onTerminal(t.Context(), t, "delete", "api", "--redis", s.addr)
			r.await(`Delete limit "api" (100/1h overall, guard 50ms; 30 used, 0 reserved, 70 available)? What was used is forgotten. Type yes`)
			r.press(tt.answer)
			r.ended(tt.status)
			if !tt.changed {
				r.await("nothing was changed")
			}
			if gone := s.rdb.Exists(t.Context(), "api").Val() == 0; gone != tt.changed {
				t.Errorf("deleted: %v, want %v", gone, tt.changed)
			}
		})
	}
}

func TestConfirmationOfType(t *testing.T) {
	s := newSite(t)
	s.limiter("api", perHour(100), 30)
	r := onTerminal(t.Context(), t, "set", "api", "10/1h", "--per-client", "--redis", s.addr)
	r.await(`Change limit "api" from overall to per_client?`)
	r.press("yes\n")
	r.ended(cli.Done)
	r.await("after   10/1h per_client")
	// Without a change of type nothing is asked.
	r = onTerminal(t.Context(), t, "set", "api", "20/1h", "--redis", s.addr)
	r.ended(cli.Done)
	r.await("after   20/1h per_client")
}

// TestConfirmationInterrupted: Ctrl-C at the question changes nothing.
func TestConfirmationInterrupted(t *testing.T) {
	s := newSite(t)
	s.limiter("api", perHour(100), 30)
	ctx, cancel := context.WithCancel(t.Context())
	r := onTerminal(ctx, t, "delete", "api", "--redis", s.addr)
	r.await("Type yes")
	cancel()
	r.ended(cli.Failed)
	if s.rdb.Exists(t.Context(), "api").Val() == 0 {
		t.Error("deleted all the same")
	}
}

func TestTopOnTerminal(t *testing.T) {
	for _, end := range []string{"q", "\x03", "context"} {
		t.Run(end, func(t *testing.T) {
			s := newSite(t)
			l := s.limiter("api", perHour(100), 50)
			s.limiter("idle", throttle.Rate{Permits: 5, Interval: time.Hour, Type: throttle.PerClient}, 0)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := onTerminal(ctx, t, "top", "--redis", s.addr)
			for _, want := range []string{"2 limits", "LIMIT", strings.Repeat("█", 10) + strings.Repeat("░", 10), "50 of 100", "0 of 5", "▅", "q quits"} {
				r.await(want)
			}
			// A change in Redis shows without a key. Only what differs is drawn again.
			s.check(l.Pause(t.Context(), 3*time.Hour))
			r.await("paused")
			if end == "context" {
				cancel()
			} else {
				r.press(end)
			}
			r.ended(cli.Done)
		})
	}
}

// TestTopOutlivesRedis: an outage shows, and goes by.
func TestTopOutlivesRedis(t *testing.T) {
	server := newServer(t)
	s := server.site
	s.limiter("api", perHour(100), 50)
	r := onTerminal(t.Context(), t, "top", "--redis", s.addr)
	r.await("50 of 100")
	server.Stop()
	r.await("Redis does not answer")
	server.Restart()
	s.limiter("api", perHour(100), 70)
	r.await("70 of")
	r.press("q")
	r.ended(cli.Done)
}

// TestTopWithoutTerminal prints one snapshot, the fullest first.
func TestTopWithoutTerminal(t *testing.T) {
	s := newSite(t)
	s.limiter("a", perHour(100), 10)
	s.limiter("b", perHour(100), 90)
	s.check(s.limiter("c", perHour(100), 0).Pause(t.Context(), time.Hour))
	got := s.run("top")
	if got.status != cli.Done || !strings.Contains(got.stderr, "no terminal") {
		t.Fatalf("%+v", got)
	}
	var order []string
	for line := range strings.Lines(got.stdout) {
		if fields := strings.Fields(line); len(fields) > 0 && len(fields[0]) == 1 {
			order = append(order, fields[0])
		}
	}
	if strings.Join(order, "") != "cba" || strings.Contains(got.stdout, "\x1b") {
		t.Errorf("printed\n%s", got.stdout)
	}
	lines := strings.Split(s.done("top", "--json", "--match", "[ab]"), "\n")
	if len(lines) != 3 || decode[limiter](t, lines[0]).Name != "b" {
		t.Errorf("as JSON: %q", lines)
	}
}

func TestScreen(t *testing.T) {
	screen := newScreen()
	if !strings.HasPrefix(screen.text(), "reading the limits") {
		t.Errorf("at first: %q", screen.text())
	}
	row := func(used int64) limiter {
		l := fromListed(operate.Listed{Name: "api", Rate: perHour(8)})
		l.Standing = &Standing{Used: used, Available: 8 - used}
		return l
	}
	for used := range int64(9) {
		screen.take(snapshot{at: time.Now(), total: 1, limiters: []limiter{row(used)}})
	}
	if !strings.Contains(screen.text(), "▁▂▃▄▅▆▇██") {
		t.Errorf("no such sparkline in\n%s", screen.text())
	}
	for range 2 * trail {
		screen.take(snapshot{at: time.Now(), total: 1, limiters: []limiter{row(8)}})
	}
	if n := len(screen.history["api"]); n != trail {
		t.Errorf("%d samples kept, want %d", n, trail)
	}
	screen.width, screen.height = 20, 5
	many := snapshot{at: time.Now(), total: 5000}
	for range 1000 {
		many.limiters = append(many.limiters, row(1))
	}
	screen.take(many)
	lines := strings.Split(strings.TrimSuffix(screen.text(), "\n"), "\n")
	if len(lines) > 5 {
		t.Errorf("%d lines on a screen of 5:\n%s", len(lines), screen.text())
	}
	for _, line := range lines {
		if n := len([]rune(line)); n > 20 {
			t.Errorf("%d characters on a screen of 20: %q", n, line)
		}
	}
	screen.width = 0
	if !strings.Contains(screen.text(), "1000 watched") {
		t.Errorf("it does not say that not all are watched:\n%s", screen.text())
	}
}

// TestTopInFlight: limits in flight stand below the others, the fullest first, also on a
// small screen.
func TestTopInFlight(t *testing.T) {
	s := newSite(t)
	s.limiter("api", perHour(100), 10)
	for name, held := range map[string]int{"few": 1, "full": 2} {
		f, err := s.client.InFlight(name, throttle.Slots{Limit: 2})
		s.check(err)
		for i := range held {
			_, err := f.Acquire(t.Context(), fmt.Sprint("job-", i))
			s.check(err)
		}
	}
	got := s.done("top")
	full, few := strings.Index(got, "full"), strings.Index(got, "few")
	if !strings.Contains(got, "IN FLIGHT") || full < strings.Index(got, "api") || few < full || !strings.Contains(got, "2 of 2") {
		t.Errorf("printed\n%s", got)
	}
	lines := strings.Split(strings.TrimSpace(s.done("top", "--json")), "\n")
	if len(lines) != 3 || decode[slots](t, lines[1]).Taken != 2 {
		t.Errorf("as JSON: %q", lines)
	}
	screen := newScreen()
	screen.height = 12
	shot := snapshot{at: time.Now(), total: 100}
	for i := range 100 {
		shot.limiters = append(shot.limiters, fromListed(operate.Listed{Name: fmt.Sprint("l", i), Rate: perHour(8)}))
		shot.limiters[i].Standing = &Standing{}
		shot.inFlight = append(shot.inFlight, operate.SlotUsage{Name: fmt.Sprint("f", i), Limit: 1})
	}
	screen.take(shot)
	text := screen.text()
	if n := strings.Count(text, "\n"); n > 12 || !strings.Contains(text, "f1 ") || !strings.Contains(text, "l1 ") {
		t.Errorf("%d lines on a screen of 12:\n%s", n, text)
	}
}

// TestTopShowsStates: a state is visible on a terminal of 80 columns, however long one watches, and
// what does not fit is first the sparkline, then the bar.
func TestTopShowsStates(t *testing.T) {
	paused := func(name string) limiter {
		l := fromListed(operate.Listed{Name: name, Rate: perHour(50), Paused: 14 * time.Minute, Pinned: true})
		l.Standing = &Standing{Used: 50}
		return l
	}
	spoilt := broken("spoilt", &throttle.Error{Limiter: "spoilt", Err: throttle.ErrInvalidRate})
	for name, wants := range map[string]map[int][]string{
		"api":                  {80: {"PARKED"}, 100: {"█", "PARKED"}, 120: {"█", "LATELY", "█████████"}},
		"stripe-customer:acme": {80: {"50 of 50"}, 100: {"PARKED"}, 120: {"█", "PARKED"}},
		"a-limit-with-a-name-of-40-characters:acme": {80: {"50 of 50"}},
	} {
		for width, more := range wants {
			screen := newScreen()
			screen.width = width
			for draw := range 2 * trail {
				screen.take(snapshot{at: time.Now(), total: 2, limiters: []limiter{spoilt, paused(name)}})
				text := screen.text()
				for _, want := range append(more, name, "paused 14m", "spoilt  broken: invalid rate") {
					if (want != "█████████" || draw > trail) && !strings.Contains(text, want) {
						t.Fatalf("draw %d on %d columns: no %q in\n%s", draw, width, want, text)
					}
				}
				for line := range strings.Lines(text) {
					if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
						t.Errorf("%d characters on %d columns: %q", n, width, line)
					}
				}
			}
		}
	}
}
