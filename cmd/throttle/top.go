package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

const (
	// refresh is how often top reads the limits.
	refresh = time.Second
	// relist is the number of refreshes after which it searches for new limits.
	relist = 10
)

func newTop(opts *options) *cobra.Command {
	var match string
	cmd := &cobra.Command{
		Use:         "top",
		Annotations: map[string]string{cli.Argument: "--match"},
		Short:       "Watch the limits live, the fullest first",
		Long: fmt.Sprintf(`top shows how the limits stand, paused and full ones first, below them the limits in
flight, and reads them again each second, until q or Ctrl-C. It watches up to %d limits: choose with --match.
Without a terminal, or with --json, it prints them once.`, usageUpTo),
		Args: args(0),
		RunE: verb(opts, func(ctx context.Context, s *session, _ []string) error { return s.top(ctx, match) }),
	}
	cmd.Flags().StringVar(&match, "match", "", "watch only names that match a `pattern`, such as 'stripe-account:*'")
	return cmd
}

// snapshot is the state of the limits at one time.
type snapshot struct {
	limiters []limiter
	total    int                 // the number of limits that match
	inFlight []operate.SlotUsage // those that cannot be read come first, then those with the largest part of their slots taken
	match    string
	at       time.Time
	err      error // why it could not be read
}

// top does what the verb does, once its flags are read.
func (s *session) top(ctx context.Context, match string) error {
	in, out := terminal(s.stdin), terminal(s.stdout)
	if !s.opts.json && in != nil && out != nil {
		return s.watch(ctx, match, in, out)
	}
	w := watch{session: s, match: match}
	shot := w.snapshot(ctx)
	if shot.err != nil {
		return shot.err
	}
	if s.opts.json {
		for _, l := range shot.limiters {
			if err := printJSON(s.stdout, l); err != nil {
				return err
			}
		}
		return s.printInFlight(shot.inFlight)
	}
	fmt.Fprintln(s.stderr, "no terminal: top prints once; on a terminal it goes on")
	screen := newScreen()
	screen.take(shot)
	_, err := fmt.Fprint(s.stdout, screen.text())
	return err
}

// watch shows snapshots on a terminal until the user or ctx ends it.
func (s *session) watch(ctx context.Context, match string, in, out *os.File) error {
	program := tea.NewProgram(model{newScreen()}, tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	// Not tea.WithContext, which would leave the reader of the keys behind.
	defer context.AfterFunc(ctx, program.Quit)()
	reading, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		w := watch{session: s, match: match}
		ticker := time.NewTicker(refresh)
		defer ticker.Stop()
		for reading.Err() == nil {
			program.Send(w.snapshot(reading))
			select {
			case <-ticker.C:
			case <-reading.Done():
			}
		}
	})
	_, err := program.Run()
	stop()
	wg.Wait()
	return err
}

// watch takes a snapshot of the limits regularly.
type watch struct {
	*session
	match string
	taken int
	names []string
	slots []string // limits in flight
	total int
}

// snapshot reads the limits that were found last.
func (w *watch) snapshot(ctx context.Context) snapshot {
	shot := snapshot{match: w.match, at: time.Now()}
	if w.taken%relist == 0 {
		all, inFlight, err := w.fleet.All(ctx, w.match)
		if err != nil {
			shot.err = err
			return shot
		}
		found := byName(all)
		w.total, w.names, w.slots = len(found), nil, nil
		for _, u := range inFlight[:min(len(inFlight), usageUpTo)] {
			w.slots = append(w.slots, u.Name)
		}
		for _, l := range found[:min(len(found), usageUpTo)] {
			w.names = append(w.names, l.Name)
		}
	}
	w.taken++
	shot.total = w.total
	if shot.limiters, shot.err = w.read(ctx, w.names...); shot.err == nil {
		shot.err = w.addAllLearnt(ctx, shot.limiters)
	}
	if shot.err == nil && len(w.slots) > 0 {
		shot.inFlight, shot.err = w.fleet.InFlight(ctx, 0, w.slots...)
		if _, spoilt := errors.AsType[*operate.SpoiltError](shot.err); spoilt {
			shot.err = nil
		}
		slices.SortStableFunc(shot.inFlight, func(a, b operate.SlotUsage) int {
			return cmp.Or(-compareBool(a.Err != nil, b.Err != nil), -cmp.Compare(slotShare(a), slotShare(b)))
		})
	}
	slices.SortStableFunc(shot.limiters, func(a, b limiter) int {
		return cmp.Or(-compareBool(a.err != nil, b.err != nil), -cmp.Compare(a.paused, b.paused), -cmp.Compare(a.share(), b.share()), -cmp.Compare(a.Parked, b.Parked))
	})
	return shot
}

// slotShare is how much of a limit in flight is taken, from 0 to 1.
func slotShare(u operate.SlotUsage) float64 { return float64(u.Taken) / float64(max(u.Limit, 1)) }

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// terminal returns the file of a stream that is a terminal, else nil.
func terminal(stream any) *os.File {
	if f, ok := stream.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// model is the screen as bubbletea uses it.
type model struct{ *screen }

// Init implements tea.Model: snapshots come without a command.
func (m model) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case snapshot:
		m.take(msg)
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "Q", "esc", "ctrl+c":
			return m, tea.Quit
		}
	}
	return m, nil
}

// View implements tea.Model.
func (m model) View() tea.View {
	v := tea.NewView(m.text())
	v.AltScreen = true
	v.WindowTitle = "throttle top"
	return v
}
