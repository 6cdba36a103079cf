// Command throttle shows the limits of a fleet of workers as they are in Redis, changes them
// while the fleet runs, and tells what holds a job.
package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/internal/cli"
)

func main() { cli.Main(newCommand()) }

// options are the flags that all verbs share.
type options struct {
	config string
	redis  string
	json   bool
	yes    bool
	value  valueFlag

	allValues bool
}

func newCommand() *cobra.Command {
	opts := new(options)
	cmd := &cobra.Command{
		Use:   "throttle",
		Short: "See and change the limits of running workers",
		Long: `throttle shows the limits of a fleet of workers, changes them while it runs,
and tells what holds a job. It reads everything from Redis, for the whole fleet.
All workers follow a change within 100 ms and a round trip to Redis.`,
		Example: `  throttle list                          all limits, and how they stand
  throttle top                           the same, live
  throttle show stripe                   one, with its clients and parked jobs
  throttle set stripe 50/1s --pin        halve it; workers that start leave it so
  throttle pause stripe 30s              let nobody through for 30s
  throttle holders stripe-slots          who holds the slots of a limit in flight
  throttle explain --task order-17       why this job is not running`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			hint := "see throttle --help"
			if meant := meantVerbs(cmd, args[0]); len(meant) > 0 {
				hint = "did you mean " + strings.Join(meant, " or ") + "? " + hint
			}
			return usage("unknown command %q: %s", args[0], hint)
		},
		RunE: func(*cobra.Command, []string) error {
			return usage("want a command, such as list or show NAME: see throttle --help")
		},
		SuggestionsMinimumDistance: 2,
	}
	flags := cmd.PersistentFlags()
	flags.SortFlags = false
	flags.StringVar(&opts.config, "config", "", "configuration `file`: its redis, and which limits have a key (config.yaml if there is one)")
	flags.StringVar(&opts.redis, "redis", "", "`address` of Redis in place of the configuration's: host:port (several, with commas: a cluster) or redis://user@host:port/db (rediss:// for TLS); its password is REDIS_PASSWORD in the environment")
	flags.BoolVar(&opts.json, "json", false, "print JSON, one object a line")
	cmd.AddCommand(newHolders(opts))
	cmd.AddCommand(
		newList(opts), newShow(opts), newTop(opts), newSet(opts),
		newPin(opts), newUnpin(opts), newPause(opts), newResume(opts), newDelete(opts), newExplain(opts), newJobs(opts), newRetry(opts), newCheck(opts), newRelease(opts),
	)
	return cmd
}

// meantVerbs returns what an unknown verb may mean: the verb that other tools call so, or else those that are spelt alike.
func meantVerbs(cmd *cobra.Command, name string) []string {
	for _, verb := range cmd.Commands() {
		if slices.Contains(verb.SuggestFor, name) {
			return []string{verb.Name()}
		}
	}
	if name == "version" {
		return []string{"--version"}
	}
	return cmd.SuggestionsFor(name)
}

// usage makes the error for a mistake in what the user wrote.
func usage(format string, args ...any) error {
	return &cli.UsageError{Err: fmt.Errorf(format, args...)}
}

// args checks the number of arguments of a verb. The first need arguments are required.
func args(need int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < need:
			return usage("%s wants %s: see %s --help", cmd.Name(), names[len(args)], cmd.CommandPath())
		case len(args) > len(names):
			return cli.Unexpected(cmd, args[len(names)])
		}
		return nil
	}
}

// asUsage converts errors of one kind to mistakes in what the user wrote.
func asUsage(err, kind error) error {
	if errors.Is(err, kind) {
		return &cli.UsageError{Err: err}
	}
	return err
}
