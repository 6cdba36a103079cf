package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/internal/plain"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// maxHolders is how many holders of one limit are read at most.
const maxHolders = 1000

// slots is a limit in flight as JSON has it.
type slots struct {
	Name     string   `json:"name"`
	InFlight int64    `json:"in_flight"`
	LeaseMS  float64  `json:"lease_ms"`
	Taken    int64    `json:"taken"`
	Waiting  int64    `json:"waiting"`
	OldestMS float64  `json:"oldest_ms"`
	Holders  []holder `json:"holders,omitempty"`
	Error    string   `json:"error,omitempty"` // why it cannot be read; then only the name is known
}

type holder struct {
	ID     string  `json:"id"`
	Client string  `json:"client,omitempty"`
	HeldMS float64 `json:"held_ms"`
	EndsMS float64 `json:"ends_ms"`
}

func fromSlots(u operate.SlotUsage) slots {
	if u.Err != nil {
		return slots{Name: u.Name, Error: u.Err.Error()}
	}
	s := slots{Name: u.Name, InFlight: u.Limit, LeaseMS: ms(u.Lease), Taken: u.Taken, Waiting: u.Waiting, OldestMS: ms(u.Oldest)}
	for _, h := range u.Holders {
		s.Holders = append(s.Holders, holder{h.ID, h.Client, ms(h.Held), ms(h.Ends)})
	}
	return s
}

func newHolders(opts *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "holders NAME",
		Short: "Show who holds the slots of a limit in flight, and how many wait",
		Long: `holders shows which jobs have the slots of a limit in flight (in_flight), since when,
and when each slot is free again if its worker does not renew it. If the limit has a
key, it shows how many slots of each value are taken; --value shows who holds those
of one value.`,
		Example: `  throttle holders stripe-slots
  throttle holders crm-order --value acme`,
		Args: args(1, "NAME, the limit to show"),
		RunE: verb(opts, func(ctx context.Context, s *session, args []string) error { return s.holders(ctx, args[0]) }),
	}
	cmd.Flags().Var(&opts.value, "value", "of a limit with a key: only this `value` of it")
	return cmd
}

// holders does what the verb does, once its flags are read.
func (s *session) holders(ctx context.Context, name string) error {
	found, err := s.inFlight(ctx, name)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return s.noneInFlight(ctx, name)
	}
	return s.showInFlight(found)
}

// noneInFlight is the error for a limit in flight that is not in Redis.
func (s *session) noneInFlight(ctx context.Context, name string) error {
	if t, err := s.target(ctx, name); err == nil {
		_, rated := s.configured(name) // target refuses one that is configured as in flight
		if there, err := s.exists(ctx, t.name); err == nil && there || rated || len(t.values) > 0 {
			return usage("limit %q has a rate, and no slots: throttle show tells how it stands", t.name)
		}
	}
	what := fmt.Sprintf("limit in flight %q", name)
	if s.opts.value != "" {
		what = fmt.Sprintf("value %q of a %s", s.opts.value, what)
	}
	return fmt.Errorf("no %s in Redis: it appears when a job first asks for a slot; throttle list shows those that are there", what)
}

// inFlight reads the limits in flight that a NAME means: one, or those of all values of a limit with a key. There is none if
// none is in Redis.
func (s *session) inFlight(ctx context.Context, name string) ([]operate.SlotUsage, error) {
	exact, err := s.pick(name)
	if err != nil {
		return nil, err
	}
	if configured, known := s.configured(name); s.opts.value != "" || !known || configured.Key == "" {
		u, err := s.slots(ctx, exact)
		switch {
		case err != nil:
			return nil, err
		case u.Limit != 0:
			return []operate.SlotUsage{u}, nil
		case s.opts.value != "":
			return nil, nil
		}
	}
	values, err := s.slotsOfValues(ctx, name)
	if err != nil || len(values) > 1 && !s.opts.json {
		return values, err
	}
	for page := range slices.Chunk(values, 100) { // with the holders of each
		names := make([]string, len(page))
		for i, u := range page {
			names[i] = u.Name
		}
		read, err := s.fleet.InFlight(ctx, maxHolders, names...)
		if _, spoilt := errors.AsType[*operate.SpoiltError](err); err != nil && !spoilt {
			return nil, err
		}
		copy(page, read)
	}
	return values, nil
}

// slotsOfValues reads the limits in flight that may be values of this one. A limit that is configured without a key has none.
func (s *session) slotsOfValues(ctx context.Context, name string) ([]operate.SlotUsage, error) {
	if l, known := s.configured(name); known && l.Key == "" {
		return nil, nil
	}
	_, found, err := s.fleet.All(ctx, literal.Replace(name)+":*")
	return slices.DeleteFunc(found, func(u operate.SlotUsage) bool { return !s.mayBeValue(name, u.Name) }), err
}

// showInFlight prints one limit in flight with its holders, or those of several values.
func (s *session) showInFlight(found []operate.SlotUsage) error {
	switch {
	case len(found) > 1:
		if len(found) == operate.MaxListed {
			fmt.Fprintf(s.stderr, "the first %d are shown; --value shows one\n", len(found))
		}
		return s.printInFlight(found)
	case s.opts.json:
		return printJSON(s.stdout, fromSlots(found[0]))
	case found[0].Err != nil:
		return found[0].Err
	}
	return printSlots(s.stdout, found[0])
}

// slots reads a limit in flight; one that does not exist has no slots.
func (s *session) slots(ctx context.Context, name string) (operate.SlotUsage, error) {
	found, err := s.fleet.InFlight(ctx, maxHolders, name)
	if err != nil {
		return operate.SlotUsage{}, asUsage(err, throttle.ErrInvalidName)
	}
	return found[0], nil
}

// printSlots shows a limit in flight and its holders.
func printSlots(out io.Writer, u operate.SlotUsage) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintln(w, plain.Text(u.Name))
	row("in flight", "%d of %d slots are taken", u.Taken, u.Limit)
	row("lease", "%s", human(u.Lease))
	if u.Waiting > 0 {
		row("waiting", "%d in workers, the first for %s", u.Waiting, human(u.Oldest))
	} else {
		row("waiting", "nobody in a worker")
	}
	if err := w.Flush(); err != nil || len(u.Holders) == 0 {
		return err
	}
	fmt.Fprintln(w, "\nHOLDER\tWORKER\tHELD\tLEASE ENDS")
	for _, h := range u.Holders {
		client := plain.Text(h.Client)
		if client == "" {
			client = "(handed over just now)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\tin %s\n", plain.Text(h.ID), client, human(h.Held), human(h.Ends))
	}
	if more := u.Taken - int64(len(u.Holders)); more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
	return w.Flush()
}

// printSlotTable prints the limits in flight, below the table of rates.
func printSlotTable(out io.Writer, all []operate.SlotUsage) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nIN FLIGHT\tSLOTS\tTAKEN\tWAITING\tLEASE")
	for _, u := range all {
		if u.Err != nil {
			fmt.Fprintf(w, "%s\t-\t-\t-\tbroken: %s\n", plain.Text(u.Name), why(u.Err))
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\n", plain.Text(u.Name), u.Limit, u.Taken, u.Waiting, human(u.Lease))
	}
	return w.Flush()
}
