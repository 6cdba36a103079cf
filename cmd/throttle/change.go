package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/internal/plain"
	"github.com/jobthrottle/jobthrottle/throttle"
)

func newPin(opts *options) *cobra.Command {
	return newChange(opts, "pin", "Make workers that start leave a limit as it is", report{"pinned", "values that appear later are not pinned"},
		func(ctx context.Context, s *session, l *throttle.Limiter) error { return s.fleet.Pin(ctx, l.Name()) })
}

func newUnpin(opts *options) *cobra.Command {
	return newChange(opts, "unpin", "Let workers that start apply their configuration again", report{done: "unpinned"},
		func(ctx context.Context, s *session, l *throttle.Limiter) error { return s.fleet.Unpin(ctx, l.Name()) })
}

func newResume(opts *options) *cobra.Command {
	cmd := newChange(opts, "resume", "End a pause at once", report{done: "resumed"},
		func(ctx context.Context, _ *session, l *throttle.Limiter) error { return l.Resume(ctx) })
	cmd.SuggestFor = []string{"unpause", "continue"}
	return cmd
}

// newChange makes a verb that changes one limiter and needs only its name.
func newChange(opts *options, name, short string, said report, change func(context.Context, *session, *throttle.Limiter) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:   name + " NAME",
		Short: short,
		Args:  args(1, "NAME, the limit to "+name),
		RunE: verb(opts, func(ctx context.Context, s *session, args []string) error {
			t, err := s.toChange(ctx, args[0])
			if err != nil {
				return err
			}
			return s.change(ctx, t, said, change)
		}),
		ValidArgsFunction: completeNames(opts),
	}
	addressable(cmd, opts)
	return cmd
}

func newPause(opts *options) *cobra.Command {
	var d time.Duration
	cmd := &cobra.Command{
		Use:   "pause NAME DURATION",
		Short: "Let nobody through for a while",
		Long: `pause stops the jobs of a limit in all workers for some time, such as 30s or 15m.
Jobs that wait keep their position in line. pause does not shorten a longer pause:
throttle resume ends it. Redisson clients do not see pauses. If a limit with a key has
several values, pause asks first, unless --all-values is given. It pauses the values
that are in Redis: jobs of a value that appears later still start. To stop these, too,
pause another limit of these jobs, one without a key, or their queue on the dashboard.`,
		Args: args(2, "NAME, the limit to pause", "DURATION, such as 30s or 15m"),
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			if d, err = time.ParseDuration(args[1]); err != nil || d <= 0 {
				return usage("cannot pause for %q: want a duration such as 30s or 15m (throttle resume ends a pause)", args[1])
			}
			return nil
		},
		RunE: verb(opts, func(ctx context.Context, s *session, args []string) error {
			t, err := s.toChange(ctx, args[0])
			if err != nil {
				return err
			}
			if err := s.sweep(ctx, t, "Pause"); err != nil {
				return err
			}
			said := report{"paused", "jobs of values that appear later still start: pause another limit of these jobs, one without a key, or their queue"}
			return s.change(ctx, t, said, func(ctx context.Context, _ *session, l *throttle.Limiter) error { return l.Pause(ctx, d) })
		}),
		ValidArgsFunction: completeNames(opts),
	}
	addressable(cmd, opts)
	confirmable(cmd, opts)
	return cmd
}

func newDelete(opts *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "delete NAME",
		SuggestFor: []string{"rm", "remove"},
		Short:      "Delete a limit and forget its usage",
		Long: `delete removes a limit from Redis, with its pause and its pin, and forgets its
usage. Workers that have it in their configuration create it again with their
next job, and may then use all of it at once. A key of Redis that is no limiter
is not deleted.`,
		Args:              args(1, "NAME, the limit to delete"),
		RunE:              verb(opts, func(ctx context.Context, s *session, args []string) error { return s.delete(ctx, args[0]) }),
		ValidArgsFunction: completeNames(opts),
	}
	addressable(cmd, opts)
	confirmable(cmd, opts)
	return cmd
}

// toDelete is toChange, and also finds what is left of a limit that had a rate before it became one in flight, and is in its way.
func (s *session) toDelete(ctx context.Context, name string) (target, error) {
	if configured, known := s.configured(name); known && configured.IsInFlight() {
		exact, err := s.pick(name)
		if err != nil {
			return target{}, err
		}
		if rated, err := s.rdb.HExists(ctx, exact, "rate").Result(); err == nil && rated {
			return target{name: exact}, nil
		}
	}
	return s.toChange(ctx, name)
}

// delete does what the verb does, once its flags are read.
func (s *session) delete(ctx context.Context, name string) error {
	t, err := s.toDelete(ctx, name)
	if err != nil {
		return err
	}
	const why = "deleting a limit forgets what was used"
	if t.keyed {
		if len(t.values) == 0 {
			return noValues(t.name)
		}
		question := fmt.Sprintf("Delete %s of limit %q? What was used is forgotten.", valuesOf(len(t.values)), t.name)
		if err := s.confirm(ctx, why, question); err != nil {
			return err
		}
		said := report{"deleted", "the next job of each creates it again from the workers' configuration"}
		return s.all(ctx, t, said, func(l *throttle.Limiter, _ *limiter) error {
			_, err := l.Delete(ctx)
			return errors.Join(err, s.parked.ForgetShares(ctx, l.Name()))
		})
	}
	if err := s.ours(ctx, t.name); err != nil {
		return err
	}
	before := (*limiter)(nil)
	question := fmt.Sprintf("Delete limit %q, which is broken? What was used is forgotten.", t.name)
	switch one, err := s.one(ctx, t.name); {
	case err == nil:
		before = &one
		question = fmt.Sprintf("Delete limit %q (%s; %s)? What was used is forgotten.", t.name, one.settings(), one.usage())
	case !s.overwrites(err):
		return err
	}
	if err := s.confirm(ctx, why, question); err != nil {
		return err
	}
	l, err := s.client.Limiter(t.name)
	if err != nil {
		return err
	}
	if deleted, err := l.Delete(ctx); err != nil {
		return err
	} else if !deleted {
		return s.missing(ctx, t.name)
	}
	if err := s.parked.ForgetShares(ctx, t.name); err != nil {
		return err
	}
	return s.printChange(t.name, before, nil)
}

// change changes limiters that have to exist, and prints them before and after.
func (s *session) change(ctx context.Context, t target, said report, change func(context.Context, *session, *throttle.Limiter) error) error {
	if t.keyed {
		return s.all(ctx, t, said, func(l *throttle.Limiter, _ *limiter) error { return change(ctx, s, l) })
	}
	before, err := s.one(ctx, t.name)
	if err != nil {
		return err
	}
	l, err := s.client.Limiter(t.name)
	if err != nil {
		return err
	}
	if err := change(ctx, s, l); err != nil {
		return err
	}
	after, err := s.one(ctx, t.name)
	if err != nil {
		return err
	}
	return s.printChange(t.name, &before, &after)
}

// overwrites reports whether an error means only that the limiter is broken. A command that
// replaces the limiter prints the error and goes on.
func (s *session) overwrites(err error) bool {
	if !isBroken(err) {
		return false
	}
	fmt.Fprintln(s.stderr, plain.Text(err.Error()))
	return true
}

// printChange prints a limiter before and after; nil is a limiter that does not exist, or whose
// configuration is invalid.
func (s *session) printChange(name string, before, after *limiter) error {
	if s.opts.json {
		return printJSON(s.stdout, struct {
			Before *limiter `json:"before"`
			After  *limiter `json:"after"`
		}{before, after})
	}
	describe := func(l *limiter) string {
		switch {
		case l == nil:
			return "no such limit"
		case l.err != nil:
			return l.state()
		}
		return l.settings() + "; " + l.usage()
	}
	_, err := fmt.Fprintf(s.stdout, "%s\n  before  %s\n  after   %s\n", plain.Text(name), describe(before), describe(after))
	return err
}
