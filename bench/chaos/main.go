//go:build unix

// Command chaos breaks everything around running workers, by a schedule that a
// seed makes reproducible, and finds out whether the limit held and no job was
// lost. It writes a section of RELIABILITY.md.
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/fault"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/judge"
	"github.com/jobthrottle/jobthrottle/internal/cli"
)

func main() { cli.Main(newCommand()) }

// options are the flags.
type options struct {
	seeds  int
	seed   uint64 // the first
	length time.Duration
	fault  string
	quick  bool
	out    string

	operators bool
}

// The minimum of a whole run.
const (
	wholeSeeds  = 20
	wholeLength = time.Minute

	// crash is the name of a fault that is not part of the mix: it has a site of its own.
	crash = "crash"
)

func newCommand() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Break everything around running workers, and see whether the limit holds",
		Long: `chaos runs workers, Redis and an API as processes on loopback, lets something go wrong
for 3 s, watches for 8 s whether all is as before, and goes on with the next. What goes
wrong and in which order depends on the seed alone. It needs redis-server and go.

It exits with 1 if the API ever saw more than its limit in any interval, or if a job that
was enqueued neither arrived nor is waiting. Records and logs of such a run are kept.

A whole run takes about 22 minutes and puts its figures into ` + reportFile + ` in the current
directory. A partial one (--quick, --fault, fewer or shorter runs) writes them into a
temporary directory, unless --out says where.

With --operators somebody runs, archives, deletes and cancels jobs at random, and pauses their
queue. The runs end when all jobs have ended. They list the jobs that ran again, and why. They
write no figures, and exit with 1 also if a job is stuck or ran again without a cause.

Faults: ` + strings.Join(names(), ", "),
		Example: `  go run ./bench/chaos                                 all, 20 seeds of 60 s
  go run ./bench/chaos --seeds 1 --seed 7              the seventh again
  go run ./bench/chaos --fault half-open --seeds 1     nothing but this
  go run ./bench/chaos --operators --seeds 1 --length 30m
  go run ./bench/chaos --quick                         only to see that it runs`,
		Args: cli.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.check(cmd.Flags().Changed); err != nil {
				return &cli.UsageError{Err: err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return chaos(cmd.Context(), opts, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVar(&opts.seeds, "seeds", wholeSeeds, "how many runs, each with the next seed")
	flags.Uint64Var(&opts.seed, "seed", 1, "the first seed")
	flags.DurationVar(&opts.length, "length", wholeLength, "how long a run takes")
	flags.StringVar(&opts.fault, "fault", "", "only this `fault`, by name")
	flags.BoolVar(&opts.quick, "quick", false, "one run of 20 s")
	flags.BoolVar(&opts.operators, "operators", false, "somebody acts on the jobs at random, too")
	flags.StringVar(&opts.out, "out", "", "`directory` to write to")
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(newJudge())
	return cmd
}

// newJudge is what Start of package judge runs.
func newJudge() *cobra.Command {
	return &cobra.Command{
		Use:    judge.Subcommand + " FILE",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return judge.Serve(args[0], os.Stdin, os.Stdout)
		},
	}
}

// check refuses flags that contradict one another or mean nothing.
func (o *options) check(set func(flag string) bool) error {
	if o.quick {
		if set("seeds") {
			return errors.New("--quick is one run: leave out --seeds")
		}
		o.seeds = 1
		if !set("length") {
			o.length = 20 * time.Second
		}
	}
	if o.operators && o.fault == crash {
		return fmt.Errorf("--operators: there is none beside --fault %s", crash)
	}
	if o.seeds < 1 {
		return fmt.Errorf("--seeds %d: want 1 or more", o.seeds)
	}
	if o.fault != "" && !slices.Contains(names(), o.fault) {
		return fmt.Errorf("--fault %s: there is no such fault, want one of %s", o.fault, strings.Join(names(), ", "))
	}
	if o.fault != crash && len(fault.Schedule(o.seed, o.length, fault.Mix())) == 0 {
		return fmt.Errorf("--length %v is too short for a single fault: want 10s or more", o.length)
	}
	return nil
}

// names are the values of --fault.
func names() []string {
	var names []string
	for _, f := range fault.All() {
		names = append(names, f.Name)
	}
	return append(names, crash)
}

// faults are the faults of the runs.
func (o *options) faults() []fault.Fault {
	switch {
	case o.fault == crash:
		return nil
	case o.fault != "":
		return slices.DeleteFunc(fault.All(), func(f fault.Fault) bool { return f.Name != o.fault })
	case o.quick: // the worker with a wrong clock takes minutes to build
		return slices.DeleteFunc(fault.Mix(), func(f fault.Fault) bool { return f.Name == fault.Clock })
	}
	return fault.Mix()
}

// crashes reports whether the death of a worker is measured, in a run of its own.
func (o *options) crashes() bool {
	return o.fault == crash || o.fault == "" && !o.quick && !o.operators
}

// partial reports whether the figures lack something that those of a whole run have.
func (o *options) partial() bool {
	return o.quick || o.fault != "" || o.seeds < wholeSeeds || o.length < wholeLength
}
