package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/limitname"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// target is what the NAME of a command means: one limiter, or the limiters of all values of a
// limit with a key.
type target struct {
	name   string           // of the limiter, or of the limit with the key
	keyed  bool             // the limiters of all values
	named  bool             // only the names in Redis look like values; nothing says that the limit has a key
	values []operate.Listed // their limiters, by name
}

// addressable gives a verb the flags that select the values of a limit with a key.
func addressable(cmd *cobra.Command, opts *options) {
	cmd.Flags().Var(&opts.value, "value", "of a limit with a key: only this `value` of it")
	cmd.Flags().BoolVar(&opts.allValues, "all-values", false, "of a limit with a key: all values of it that are in Redis")
}

// valueFlag is --value. It may be given only once.
type valueFlag string

func (v *valueFlag) String() string { return string(*v) }
func (v *valueFlag) Type() string   { return "value" }

// Set implements pflag.Value.
func (v *valueFlag) Set(text string) error {
	if *v != "" {
		return errors.New("it is given twice: want one value, or --all-values")
	}
	*v = valueFlag(text)
	return nil
}

// target finds out what a name means. A limit has a key if the configuration or --all-values
// says so. Otherwise it has a key if nothing has the name itself, and there are limiters whose
// names look like its values.
func (s *session) target(ctx context.Context, name string) (target, error) {
	exact, err := s.pick(name)
	if err != nil {
		return target{}, err
	}
	configured, known := s.configured(name)
	switch {
	case known && configured.IsInFlight():
		return target{}, hasSlots(name)
	case s.opts.value != "":
		return target{name: exact}, nil
	}
	t := target{name: name, keyed: known && configured.Key != "" || s.opts.allValues}
	switch {
	case s.opts.allValues && known && configured.Key == "":
		return target{}, usage("limit %q has no key in the configuration: leave --all-values out", name)
	case !t.keyed:
		if there, err := s.exists(ctx, name); err != nil || there || known {
			return t, err
		}
	}
	if err := unreserved(name + ":"); err != nil {
		if t.keyed {
			return target{}, err
		}
		return t, nil // no limiter has the name itself
	}
	values, err := s.find(ctx, literal.Replace(name)+":*")
	if err != nil {
		return target{}, err
	}
	t.values = slices.DeleteFunc(values, func(l operate.Listed) bool { return !s.mayBeValue(name, l.Name) })
	t.named = !t.keyed && len(t.values) > 0
	t.keyed = t.keyed || t.named
	return t, nil
}

// pick is the name of the limiter that a NAME and --value mean, or the NAME itself without --value.
func (s *session) pick(name string) (string, error) {
	if _, err := s.client.Limiter(name); err != nil {
		return "", asUsage(err, throttle.ErrInvalidName)
	}
	if err := unreserved(name); err != nil {
		return "", err
	}
	switch configured, known := s.configured(name); {
	case s.opts.value == "":
		return name, nil
	case s.opts.allValues:
		return "", usage("want either --value or --all-values")
	case known && configured.Key == "":
		return "", usage("limit %q has no key in the configuration: leave --value out", name)
	}
	of, err := limitname.OfValue(name, string(s.opts.value))
	if err != nil {
		return "", &cli.UsageError{Err: fmt.Errorf("--value: %w", err)}
	}
	return of, unreserved(of)
}

// toChange is target for the verbs that change something. Names that look like values are not
// enough for them: api:read and api:write are probably limits of their own, and api a typing
// error.
func (s *session) toChange(ctx context.Context, name string) (target, error) {
	t, err := s.target(ctx, name)
	if err == nil && t.named {
		begin := "1 limiter begins"
		if n := len(t.values); n > 1 {
			begin = fmt.Sprintf("%d limiters begin", n)
		}
		err = usage("no limiter %q in Redis: %s with %q; if they are its values, give --all-values, or --config with the file that has its key", name, begin, name+":")
	}
	return t, err
}

// sweep asks before a verb changes several values that nobody named.
func (s *session) sweep(ctx context.Context, t target, verb string) error {
	if len(t.values) < 2 || s.opts.allValues {
		return nil
	}
	return s.confirm(ctx, fmt.Sprintf("limit %q has %s in Redis (--value picks one, --all-values means all)", t.name, valuesOf(len(t.values))),
		fmt.Sprintf("%s %s of limit %q?", verb, valuesOf(len(t.values)), t.name))
}

// exists reports whether a limiter is in Redis, valid or not.
func (s *session) exists(ctx context.Context, name string) (bool, error) {
	found, err := s.fleet.Inspect(ctx, name)
	if isBroken(err) {
		return true, nil
	}
	return len(found) > 0, err
}

// existsAsAny is like exists, and also finds limits in flight.
func (s *session) existsAsAny(ctx context.Context, name string) (bool, error) {
	if there, err := s.exists(ctx, name); there || err != nil {
		return there, err
	}
	return s.existsInFlight(ctx, name)
}

// existsInFlight reports whether a limit in flight has the name, or values of one have it.
func (s *session) existsInFlight(ctx context.Context, name string) (bool, error) {
	u, err := s.slots(ctx, name)
	if err != nil || u.Limit > 0 {
		return u.Limit > 0, err
	}
	values, err := s.slotsOfValues(ctx, name)
	return len(values) > 0, err
}

// mayBeValue reports whether the limiter of that name may be a value of a limit. The name
// begins with the name of the limit and a colon. It may be a value if it is not configured
// itself and has no other colon.
func (s *session) mayBeValue(limit, name string) bool {
	_, other := s.configured(name)
	return !other && !strings.Contains(name[len(limit)+1:], ":")
}

// noValues is the error for a limit with a key that has no value in Redis.
func noValues(name string) error {
	return fmt.Errorf("limit %q has a key, and no value of it is in Redis: a value appears with its first job; throttle set %s RATE --value VALUE --create makes one", name, name)
}

// report is what a verb says at the end when it has changed all values of a limit with a key.
type report struct {
	done  string // with the values that are in Redis
	later string // how those that appear later are; empty: as these are now
}

// all changes the limiters of a target, and reads them before and after, page by page: the states
// of a million values do not fill the memory.
func (s *session) all(ctx context.Context, t target, said report, change func(l *throttle.Limiter, before *limiter) error) error {
	if len(t.values) == 0 {
		return noValues(t.name)
	}
	changed, wrong, shown := 0, 0, 0
	for page := range slices.Chunk(t.values, 200) {
		names := make([]string, len(page))
		for i, l := range page {
			names[i] = l.Name
		}
		before, err := s.byName(ctx, names)
		if err != nil {
			return t.partly(changed, err)
		}
		for _, name := range names {
			l, err := s.client.Limiter(name)
			if err == nil {
				err = change(l, before[name])
			}
			switch {
			case err == nil:
				changed++
			case isBroken(err):
				wrong++
				s.overwrites(err)
			case !errors.Is(err, throttle.ErrNotInitialized): // unused, and expired meanwhile
				return t.partly(changed, err)
			}
		}
		after, err := s.byName(ctx, names)
		if err != nil {
			return t.partly(changed, err)
		}
		for _, name := range names {
			if shown++; shown > shownChanges && !s.opts.json {
				break
			}
			if err := s.printChange(name, before[name], after[name]); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(s.stderr, "%s %s of limit %q", said.done, valuesOf(changed), t.name)
	if changed > shownChanges && !s.opts.json {
		fmt.Fprintf(s.stderr, ", of which %d are shown", shownChanges)
	}
	if said.later != "" {
		fmt.Fprint(s.stderr, "; "+said.later)
	}
	fmt.Fprintln(s.stderr)
	if wrong > 0 {
		return fmt.Errorf("%s of limit %q could not be changed, see above: set a rate, or delete them", valuesOf(wrong), t.name)
	}
	return nil
}

// shownChanges is how many changed values are printed for people at most.
const shownChanges = 20

func valuesOf(n int) string {
	if n == 1 {
		return "1 value"
	}
	return fmt.Sprintf("%d values", n)
}

// partly says how many values were changed before an error.
func (t target) partly(changed int, err error) error {
	return fmt.Errorf("%d of %s of limit %q are changed: %w", changed, valuesOf(len(t.values)), t.name, err)
}

// byName reads limiters; those that do not exist are missing in the map.
func (s *session) byName(ctx context.Context, names []string) (map[string]*limiter, error) {
	found, err := s.read(ctx, names...)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]*limiter, len(found))
	for i := range found {
		byName[found[i].Name] = &found[i]
	}
	return byName, nil
}
