package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/internal/plain"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

func newShow(opts *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "show NAME",
		SuggestFor: []string{"get", "status", "info", "describe"},
		Short:      "Show one limit: its configuration, its usage, its clients and its parked jobs",
		Args:       args(1, "NAME, the limit to show"),
		RunE: verb(opts, func(ctx context.Context, s *session, args []string) error {
			configured, known := s.configured(args[0])
			if known && configured.IsInFlight() {
				return s.holders(ctx, args[0])
			}
			if exact, err := s.pick(args[0]); err == nil && !known {
				if u, err := s.slots(ctx, exact); err == nil && u.Limit > 0 {
					return s.showInFlight([]operate.SlotUsage{u})
				}
			}
			t, err := s.target(ctx, args[0])
			if err != nil {
				return err
			}
			if t.keyed {
				return s.showValues(ctx, t)
			}
			l, err := s.one(ctx, t.name)
			if err != nil {
				if found, _ := s.inFlight(ctx, args[0]); !known && !isBroken(err) && len(found) > 0 {
					return s.showInFlight(found)
				}
				return err
			}
			if err := s.readTenants(ctx, &l); err != nil {
				return err
			}
			if err := s.addLearnt(ctx, &l); err != nil {
				return err
			}
			if s.opts.json {
				return printJSON(s.stdout, l)
			}
			return errors.Join(l.print(s.stdout), l.tenants(s.stdout))
		}),
		ValidArgsFunction: completeNames(opts),
	}
	addressable(cmd, opts)
	return cmd
}

// showValues shows the values of a limit with a key in the same way as list.
func (s *session) showValues(ctx context.Context, t target) error {
	if len(t.values) == 0 {
		return noValues(t.name)
	}
	return s.printList(ctx, t.values, len(t.values), "")
}

// print prints all that is known about a limiter.
func (l limiter) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintln(w, plain.Text(l.Name))
	if l.rate.Type == throttle.PerClient {
		row("rate", "%s for each worker (per_client)", l.Rate)
	} else {
		row("rate", "%s for the fleet together (overall)", l.Rate)
	}
	if l.rate.Window == throttle.Calendar {
		row("window", "calendar, from %s after UTC midnight", human(l.rate.Offset))
	} else {
		row("window", "sliding")
	}
	if l.Adapts != nil {
		row("adapts", "%s", l.Adapts)
		if !l.Adapts.OthersSeen.IsZero() {
			row("others", "%s ago the API refused far less than it had taken: somebody else uses the quota, or it was lowered", human(time.Since(l.Adapts.OthersSeen)))
		}
	}
	row("guard", "%s", orNone(l.rate.Guard))
	row("smooth", "%s", yesNo(l.Smooth))
	row("keep alive", "%s", orNone(l.rate.KeepAlive))
	if l.idle() {
		row("usage", "%s", l.usage())
	} else {
		row("used", "%d", l.Used)
		row("reserved", "%d", l.Reserved)
		row("available", "%d", l.Available)
		row("next free", "%s", l.nextFree())
	}
	if l.paused > 0 {
		row("paused", "for another %s", human(l.paused))
	} else {
		row("paused", "no")
	}
	if l.Pinned {
		row("pinned", "yes: workers that start leave it as it is")
	} else {
		row("pinned", "no: workers that start apply their configuration")
	}
	row("parked", "%s", l.parked())
	if err := w.Flush(); err != nil || len(l.Clients) == 0 {
		return err
	}
	fmt.Fprintln(w, "\nCLIENT\tUSED\tRESERVED\tAVAILABLE\tNEXT FREE")
	for _, c := range l.Clients {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\n", plain.Text(c.ID), c.Used, c.Reserved, c.Available, soon(fromMS(c.NextFreeMS)))
	}
	return w.Flush()
}

// parked says how many jobs wait outside of slots, and when the first is due.
func (l limiter) parked() string {
	if l.Parked+l.Called == 0 {
		return "no jobs"
	}
	s := fmt.Sprintf("%d jobs in line", l.Parked)
	if l.Called > 0 {
		s += fmt.Sprintf(", %d called and on their way", l.Called)
	}
	if l.Parked > 0 {
		s += fmt.Sprintf("; the first is due: %s", soon(l.firstDue()))
	}
	return s
}

// firstDue is how long it takes until the first parked job gets a permit.
func (l limiter) firstDue() time.Duration { return max(fromMS(l.NextFreeMS), l.paused) }

func orNone(d time.Duration) string {
	if d <= 0 {
		return "none"
	}
	return human(d)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
