package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// setFlags are what set can change besides permits and interval.
type setFlags struct {
	perClient bool
	pin       bool
	guard     time.Duration
	smooth    bool
	window    string
	offset    time.Duration
	keepAlive time.Duration
	create    bool
	weights   []string
}

func newSet(opts *options) *cobra.Command {
	var f setFlags
	cmd := &cobra.Command{
		Use:         "set NAME [RATE]",
		SuggestFor:  []string{"create", "add", "update", "change"},
		Annotations: map[string]string{cli.Argument: "RATE is one word, such as 10/1s", "--rate": "RATE is an argument: throttle set NAME 10/1s", "--type": "write --per-client, or --per-client=false", "--permits": "RATE is an argument: throttle set NAME 10/1s", "--interval": "RATE is an argument: throttle set NAME 10/1s"},
		Short:       "Change a limit, or create one",
		Long: `set changes the rate of a limit, such as 100/1s or 5000/24h, in all running workers
within 100 ms and a round trip to Redis. Permits that were used still count: a lower
rate holds at once, a higher one adds only the difference. Flags that are not given
change nothing. A limit that is not in Redis is created with --create only.

Workers that start apply the rate of their configuration again, unless the limit
is pinned: --pin pins it, throttle unpin ends that.

The name of a limit with a key means all values that are in Redis; set asks first,
unless --all-values is given. Values that appear later have the rate of the
configuration. --value changes one value and pins it: its rate stays until throttle
unpin, even if it is not used for long. Only the configuration says that a limit
has a key: without it, give --all-values.

Tenants that share a limit (share in the configuration) get it by weight. --weight
changes the weight of one tenant, at once and until it is changed again. Workers
that start keep it.

A change of type (--per-client) forgets the usage, so set asks first.`,
		Example: `  throttle set stripe 50/1s --pin
  throttle set stripe-account 5/1s --value acme     one account
  throttle set stripe --smooth                      spread evenly, the rate as it is
  throttle set llm-requests --weight acme=5         a tenant that shares it
  throttle set quota 10000/24h --window calendar --offset 8h`,
		Args: args(1, "NAME, the limit to change", "RATE"),
		PreRunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(f.weights) > 0 && (len(args) > 1 || f.create):
				return usage("--weight changes the share of a tenant, and RATE the limit: one at a time")
			case f.create && len(args) == 1:
				return usage("--create wants a RATE, such as 100/1s: see throttle set --help")
			case cmd.Flags().Changed("pin") && !f.pin && opts.value == "":
				return usage("--pin=false goes with --value: throttle unpin %s ends a pin", args[0])
			case cmd.Flags().Changed("window") && f.window != throttle.Sliding.String() && f.window != throttle.Calendar.String():
				return usage("--window %q: want sliding or calendar", f.window)
			case len(args) == 2:
				_, err := throttle.ParseRate(args[1])
				if _, notNumber := strconv.ParseUint(args[1], 10, 64); err != nil && notNumber == nil {
					err = fmt.Errorf("%w; if it is of a limit in flight, %s", err, changeInFlight)
				}
				return asUsage(err, throttle.ErrInvalidRate)
			}
			for _, flag := range []string{"per-client", "pin", "guard", "smooth", "window", "offset", "keep-alive"} {
				switch {
				case !cmd.Flags().Changed(flag):
				case len(f.weights) > 0:
					return usage("--weight changes the share of a tenant, and --%s the limit: one at a time", flag)
				case flag == "pin" && !f.pin: // this alone changes nothing
				default:
					return nil
				}
			}
			if len(f.weights) > 0 {
				_, err := parseWeights(f.weights)
				return err
			}
			return usage("set wants a RATE, such as 100/1s, or a flag for what to change: see throttle set --help")
		},
		ValidArgsFunction: completeNames(opts),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&f.perClient, "per-client", false, "each worker has the permits for itself (=false: the fleet shares them)")
	flags.BoolVar(&f.pin, "pin", false, "make workers that start leave the limit as it is (with --value: unless =false)")
	flags.DurationVar(&f.guard, "guard", 0, "how long a permit counts beyond its interval: 0 for the default, negative for none")
	flags.BoolVar(&f.smooth, "smooth", false, "spread permits evenly instead of in bursts (=false: in bursts)")
	flags.StringVar(&f.window, "window", "", "sliding or calendar")
	flags.DurationVar(&f.offset, "offset", 0, "where calendar windows begin, from UTC midnight")
	flags.DurationVar(&f.keepAlive, "keep-alive", 0, "remove the limit when it is not used for so long (0: keep it)")
	flags.BoolVar(&f.create, "create", false, "create the limit if it is not there")
	flags.StringArrayVar(&f.weights, "weight", nil, "how much a tenant gets that shares the limit, `TENANT=WEIGHT`: acme=5; acme= for the weight of the configuration")
	addressable(cmd, opts)
	confirmable(cmd, opts)
	cmd.RunE = verb(opts, func(ctx context.Context, s *session, args []string) error {
		if len(f.weights) > 0 {
			return s.setWeights(ctx, args[0], f.weights)
		}
		given := func(flag string) bool { return cmd.Flags().Changed(flag) }
		if opts.value != "" && !given("pin") {
			f.pin = true // a user who gives a value its own rate wants it to stay
		}
		return s.set(ctx, args, f, given)
	})
	return cmd
}

// set does what the verb does, once its flags are read.
func (s *session) set(ctx context.Context, args []string, f setFlags, given func(flag string) bool) error {
	t, err := s.target(ctx, args[0])
	switch {
	case err == nil && f.create && t.named:
		t = target{name: t.name} // the user wants a limit with exactly this name
	case err == nil && f.create && t.keyed:
		return usage("limit %q has a key: --create makes the limiter of one value, give it with --value", t.name)
	case err == nil && t.named:
		t, err = s.toChange(ctx, args[0])
	}
	if err != nil {
		return err
	}
	if t.keyed {
		return s.setValues(ctx, t, args[1:], f, given)
	}
	if err := s.ours(ctx, t.name); err != nil {
		return err
	}
	l, err := s.client.Limiter(t.name)
	if err != nil {
		return err
	}
	found, err := s.read(ctx, t.name)
	if err != nil {
		return err
	}
	var before *limiter
	overwritten := len(found) == 1 && found[0].err != nil
	switch {
	case overwritten && (len(args) == 1 || !s.overwrites(found[0].err)):
		return found[0].err
	case len(found) == 1 && !overwritten:
		before = &found[0]
	}
	if before == nil && !overwritten && !f.create {
		if err := s.slotsInstead(ctx, t.name); err != nil {
			return err
		}
	}
	switch {
	case before != nil || overwritten || f.create:
	case len(args) == 1:
		return fmt.Errorf("%w; to create it, give its rate, such as 100/1s, and --create", s.missing(ctx, t.name))
	default:
		return s.uncreated(ctx, t.name)
	}
	base := before
	switch {
	case overwritten:
		if base, err = s.unbroken(ctx, t.name); err != nil {
			return err
		}
	case base == nil:
		base = s.likeOthers(args[0])
	}
	rate, err := f.rate(base, args[1:], given)
	if err != nil {
		return asUsage(err, throttle.ErrInvalidRate)
	}
	if before != nil && before.rate.Type != rate.Type {
		question := fmt.Sprintf("Change limit %q from %s to %s? What was used is forgotten.", before.Name, before.rate.Type, rate.Type)
		if err := s.confirm(ctx, typeForgets, question); err != nil {
			return err
		}
	}
	if lowers(before, rate) {
		if err := s.strands(ctx, fmt.Sprintf("Change limit %q to %s", before.Name, rate), []lowered{{t.name, before.rate.Permits, rate.Permits, f.pin || before.Pinned}}); err != nil {
			return err
		}
	}
	if err := s.apply(ctx, l, rate, f.pin); err != nil {
		return err
	}
	after, err := s.one(ctx, t.name)
	if err != nil {
		return err
	}
	if err := s.printChange(t.name, before, &after); err != nil {
		return err
	}
	if after.Pinned {
		return nil
	}
	if err := s.addLearnt(ctx, &after); err != nil {
		return err
	}
	if after.Adapts == nil {
		fmt.Fprintln(s.stderr, "not pinned: a worker that starts applies the rate of its configuration, if it has this limit")
		return nil
	}
	fmt.Fprintf(s.stderr, "not pinned: the limit adapts, and goes on from %d; with --pin it stays as it is set\n",
		min(max(rate.Permits, after.Adapts.Min), after.Adapts.Max))
	return nil
}

// likeOthers is what a new limiter of a value begins with: what the configuration says about
// its limit, or nil if it does not have it.
func (s *session) likeOthers(limit string) *limiter {
	configured, known := s.configured(limit)
	if s.opts.value == "" || !known {
		return nil
	}
	rate, err := configured.ThrottleRate()
	if err != nil {
		return nil
	}
	return &limiter{rate: rate}
}

// unbroken is a broken limiter as it is configured, if other keys than that of its name are wrong, else nil.
func (s *session) unbroken(ctx context.Context, name string) (*limiter, error) {
	found, err := s.find(ctx, literal.Replace(name))
	if err != nil || len(found) == 0 || found[0].Err != nil {
		return nil, err
	}
	l := fromListed(found[0])
	return &l, nil
}

const typeForgets = "changing the type of a limit forgets what was used"

// rate is the rate of the limiter, changed by what the flags give.
func (f setFlags) rate(before *limiter, args []string, given func(flag string) bool) (throttle.Rate, error) {
	var r throttle.Rate
	if before != nil {
		r = before.rate
	}
	if len(args) == 1 {
		parsed, err := throttle.ParseRate(args[0])
		if err != nil {
			return r, err
		}
		if r.Guard == r.DefaultGuard() {
			r.Guard = 0 // the default of the new interval
		}
		r.Permits, r.Interval = parsed.Permits, parsed.Interval
	}
	if given("per-client") {
		r.Type = throttle.Overall
		if f.perClient {
			r.Type = throttle.PerClient
		}
	}
	if given("guard") {
		r.Guard = f.guard
	}
	if given("smooth") {
		r.Smooth = f.smooth
	}
	switch {
	case !given("window"):
	case f.window == throttle.Calendar.String():
		r.Window = throttle.Calendar
	default:
		r.Window, r.Offset = throttle.Sliding, 0
	}
	if given("offset") {
		r.Offset = f.offset
	}
	if given("keep-alive") {
		r.KeepAlive = f.keepAlive
	}
	return r, r.Validate()
}

// apply creates the limiter, or changes its rate and keeps its usage. The pin comes before the
// final change of the rate, so that a worker that starts cannot overwrite it.
func (s *session) apply(ctx context.Context, l *throttle.Limiter, r throttle.Rate, pin bool) error {
	if _, err := l.TrySetRate(ctx, r); err != nil && !errors.Is(err, throttle.ErrInvalidRate) { // it exists, and is corrected below
		return err
	}
	if pin {
		if err := s.fleet.Pin(ctx, l.Name()); err != nil {
			return err
		}
	}
	changed, err := l.UpdateRate(ctx, r)
	if err == nil && !changed {
		err = fmt.Errorf("limit %q was deleted at the same time: set it again", l.Name())
	}
	return err
}
