package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/plain"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// usageUpTo is how many limiters' logs list reads at most. Reading more would make it slow, and
// Redis busy.
const usageUpTo = 1000

func newList(opts *options) *cobra.Command {
	var match string
	var most int
	cmd := &cobra.Command{
		Use:         "list",
		SuggestFor:  []string{"ls", "limits"},
		Annotations: map[string]string{cli.Argument: "--match"},
		Short:       "List the limits and how they stand",
		Long: fmt.Sprintf(`list prints the limits in Redis by name. A limit with a key has one line for each
value. list reads the usage of up to %d limits; if there are more, the others are
listed with their configuration only.`, usageUpTo),
		Example: `  throttle list --match 'stripe-account:*' --max 20
  throttle list --json | jq 'select(.paused_ms > 0).name'`,
		Args: args(0),
		PreRunE: func(*cobra.Command, []string) error {
			if most < 0 {
				return usage("--max %d: want 1 or more, or 0 for all", most)
			}
			return nil
		},
		RunE: verb(opts, func(ctx context.Context, s *session, _ []string) error {
			all, inFlight, err := s.fleet.All(ctx, match)
			if err != nil {
				return err
			}
			found := byName(all)
			if len(found)+len(inFlight) == 0 && !s.opts.json {
				fmt.Fprintln(s.stdout, "no limits"+matching(match)+s.where()+": they appear when a worker applies its configuration, or with throttle set --create")
				return nil
			}
			total, slots := len(found), len(inFlight)
			if most > 0 {
				found = found[:min(most, total)]
				inFlight = inFlight[:min(most-len(found), slots)]
			}
			if len(found) > 0 || len(inFlight) == 0 {
				if err := s.printList(ctx, found, total, match); err != nil {
					return err
				}
			}
			switch shown := len(inFlight); {
			case s.opts.json:
			case shown == 0 && slots > 0:
				fmt.Fprint(s.stderr, "limits in flight: none of them shown; narrow with --match, or raise --max\n")
			case slots == operate.MaxListed:
				fmt.Fprintf(s.stderr, "%d limits in flight or more, the first %d of them shown: narrow with --match\n", slots, shown)
			case shown < slots:
				fmt.Fprintf(s.stderr, "%d limits in flight, the first %d of them shown\n", slots, shown)
			}
			return s.printInFlight(inFlight)
		}),
	}
	cmd.Flags().StringVar(&match, "match", "", "list only names that match a `pattern`, in which * stands for any text and ? for any character")
	cmd.Flags().IntVar(&most, "max", 0, "print the first `N` only (0 is all)")
	cmd.Flags().IntVar(&most, "limit", 0, "")
	_ = cmd.Flags().MarkHidden("limit") // what --max was called
	return cmd
}

// printList prints limiters that were found. It shows their usage unless they are too many.
func (s *session) printList(ctx context.Context, found []operate.Listed, total int, match string) error {
	limiters, err := s.stand(ctx, found)
	if err != nil {
		return err
	}
	if s.opts.json {
		for _, l := range limiters {
			if err := printJSON(s.stdout, l); err != nil {
				return err
			}
		}
		return nil
	}
	if err := printTable(s.stdout, limiters); err != nil {
		return err
	}
	fmt.Fprintln(s.stderr, summary(limiters, total, match))
	return nil
}

// printInFlight prints the limits in flight of a list, if there are any.
func (s *session) printInFlight(all []operate.SlotUsage) error {
	if len(all) == 0 {
		return nil
	}
	if !s.opts.json {
		return printSlotTable(s.stdout, all)
	}
	for _, u := range all {
		if err := printJSON(s.stdout, fromSlots(u)); err != nil {
			return err
		}
	}
	return nil
}

// stand reads the usage of limiters that were found, unless they are too many.
func (s *session) stand(ctx context.Context, found []operate.Listed) ([]limiter, error) {
	names, limiters := make([]string, len(found)), make([]limiter, len(found))
	for i, l := range found {
		names[i], limiters[i] = l.Name, fromListed(l)
	}
	if len(found) > usageUpTo {
		return limiters, nil
	}
	return s.read(ctx, names...)
}

// find returns the configurations of limiters, by name.
func (s *session) find(ctx context.Context, match string) ([]operate.Listed, error) {
	var found []operate.Listed
	for l, err := range s.fleet.Limiters(ctx, match) {
		if err != nil {
			return nil, err
		}
		found = append(found, l)
	}
	return byName(found), nil
}

// byName sorts limiters by name and removes duplicates.
func byName(found []operate.Listed) []operate.Listed {
	slices.SortFunc(found, func(a, b operate.Listed) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(found, func(a, b operate.Listed) bool { return a.Name == b.Name })
}

// summary is the line below the list.
func summary(found []limiter, total int, match string) string {
	s := countOf(total) + matching(match)
	if len(found) < total {
		s += fmt.Sprintf(", the first %d of them shown", len(found))
	}
	if len(found) > usageUpTo {
		s += fmt.Sprintf("; the usage is shown for up to %d: narrow with --match or --max", usageUpTo)
	}
	return s
}

func countOf(limits int) string {
	if limits == 1 {
		return "1 limit"
	}
	return fmt.Sprintf("%d limits", limits)
}

func matching(pattern string) string {
	if pattern == "" {
		return ""
	}
	return " match " + strconv.Quote(pattern)
}

// printTable prints limiters as a table, with the usage if that was read.
func printTable(out io.Writer, limiters []limiter) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	withUsage := len(limiters) <= usageUpTo
	if withUsage {
		fmt.Fprintln(w, "NAME\tRATE\tTYPE\tUSED\tRESERVED\tAVAILABLE\tNEXT FREE\tPARKED\tSTATE")
	} else {
		fmt.Fprintln(w, "NAME\tRATE\tTYPE\tSTATE")
	}
	for _, l := range limiters {
		switch {
		case withUsage && l.err != nil:
			fmt.Fprintf(w, "%s\t-\t-\t-\t-\t-\t-\t-\t%s\n", plain.Text(l.Name), l.state())
		case l.err != nil:
			fmt.Fprintf(w, "%s\t-\t-\t%s\n", plain.Text(l.Name), l.state())
		case withUsage:
			available := strconv.FormatInt(l.Available, 10)
			if l.idle() {
				available = "-" // this number would depend on the worker
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%d\t%s\n",
				plain.Text(l.Name), l.Rate, l.Type, l.Used, l.Reserved, available, l.nextFree(), l.Parked, l.state())
		default:
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", plain.Text(l.Name), l.Rate, l.Type, l.state())
		}
	}
	return w.Flush()
}
