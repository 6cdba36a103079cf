// Command bench measures jobthrottle and its peers side by side, in one run on one Redis that
// it starts itself. It writes BENCHMARKS.md and a plot.
package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/bench/internal/scenario"
	"github.com/jobthrottle/jobthrottle/internal/cli"
)

func main() { cli.Main(newCommand()) }

// options are the flags.
type options struct {
	rounds int
	only   []string
	quick  bool
	out    string
}

func newCommand() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure jobthrottle and its peers side by side",
		Long: `bench measures jobthrottle, redis_rate, Redisson, asynq with and without the recipe
of its wiki, and an empty script, by turns on one redis-server that it starts itself on
a loopback port. It needs redis-server; without Java and Maven it leaves Redisson out.

A whole run takes about 22 minutes on an otherwise idle machine and writes
` + reportFile + ` and ` + plotFile + ` into the current directory. A partial one (--quick, --only)
writes them into a temporary directory, unless --out says where.

Scenarios: ` + strings.Join(scenario.Names(), ", "),
		Example: `  go run ./bench                           all, 5 rounds
  go run ./bench --only contended          both contended scenarios
  go run ./bench --quick                   only to see that it runs`,
		Args: cli.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.check(cmd.Flags().Changed); err != nil {
				return &cli.UsageError{Err: err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench(cmd.Context(), opts, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVar(&opts.rounds, "rounds", 5, "how often everything is measured; figures are medians")
	flags.StringSliceVar(&opts.only, "only", nil, "measure only these `scenarios`, by name or the beginning of one")
	flags.BoolVar(&opts.quick, "quick", false, "one short round that shows that everything runs; its figures mean nothing")
	flags.StringVar(&opts.out, "out", "", "`directory` to write to")
	return cmd
}

// check refuses flags that contradict one another or mean nothing.
func (o *options) check(set func(flag string) bool) error {
	if o.quick {
		if set("rounds") {
			return errors.New("--quick is one round: leave out --rounds")
		}
		o.rounds = 1
	}
	if o.rounds < 1 {
		return fmt.Errorf("--rounds %d: want 1 or more", o.rounds)
	}
	for _, name := range o.only {
		if len(named(name)) == 0 {
			return fmt.Errorf("--only %s: there is no such scenario, want some of %s", name, strings.Join(scenario.Names(), ", "))
		}
	}
	if set("only") && len(o.only) == 0 {
		return errors.New("--only names no scenario")
	}
	return nil
}

// wants reports whether a scenario is to be measured.
func (o *options) wants(name string) bool {
	return len(o.only) == 0 || slices.ContainsFunc(o.only, func(only string) bool { return slices.Contains(named(only), name) })
}

// named returns the scenarios that a name means. It may be the beginning of several names.
func named(name string) []string {
	if slices.Contains(scenario.Names(), name) {
		return []string{name}
	}
	return slices.DeleteFunc(scenario.Names(), func(s string) bool { return !strings.HasPrefix(s, name) })
}

// partial reports whether the report lacks something that a whole one has.
func (o *options) partial() bool { return o.quick || len(o.only) > 0 }
