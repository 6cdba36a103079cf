//go:build linux

// Command soak loads a Redis that it starts itself from two processes for half an hour, while
// things go wrong. It watches whether anything grows.
package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/internal/cli"
)

func main() { cli.Main(newCommand()) }

// options are the flags.
type options struct {
	length time.Duration
	rate   int64
	out    string
}

// shortest is the shortest run in which everything happens once.
const shortest = 10 * time.Second

func newCommand() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Watch memory, keys and goroutines under load and faults",
		Long: `soak lets two processes acquire from one limit and from limiters that come and go, on a
redis-server that it starts itself, and makes something go wrong every 20 s: a process is
stopped for 2 s, all connections are killed, all scripts are forgotten. It prints what it
sees, writes ` + sectionFile + `, and ends with status 1 if anything has grown.

What a process has taken after ` + settledAfter.String() + ` is compared with what it has at the end; a run shorter
than ` + judgedFrom.String() + ` says what it saw, and judges nothing.`,
		Example: `  go run ./bench/soak                    half an hour
  go run ./bench/soak --length 20s       only to see that it runs`,
		Args: cli.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			switch {
			case opts.length < shortest:
				return &cli.UsageError{Err: fmt.Errorf("--length %v: want at least %v", opts.length, shortest)}
			case opts.rate < 1:
				return &cli.UsageError{Err: fmt.Errorf("--rate %d: want 1 or more", opts.rate)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), opts, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.DurationVar(&opts.length, "length", 30*time.Minute, "how long")
	flags.Int64Var(&opts.rate, "rate", 5000, "permits per `second` of the limit that the processes share")
	flags.StringVar(&opts.out, "out", "", "`directory` to write "+sectionFile+" to (default a temporary one)")
	cmd.AddCommand(newMemberCommand())
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetHelpCommand(&cobra.Command{Hidden: true})
	return cmd
}
