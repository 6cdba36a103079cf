package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

func newRelease(opts *options) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "release --all",
		Short: "Return all waiting jobs to their queues, for workers of an older version or of asynq alone",
		Long: `release returns all waiting jobs to their queues, for workers of an older version or
of asynq alone. First stop the workers that run now: they would park the jobs again.`,
		Args: args(0),
		PreRunE: func(*cobra.Command, []string) error {
			if !all {
				return usage("want --all: the jobs of all limits and queues are returned")
			}
			return nil
		},
		RunE: verb(opts, func(ctx context.Context, s *session, _ []string) error {
			n, err := s.parked.Release(ctx)
			if err != nil {
				return fmt.Errorf("%d jobs are returned, and then: %w", n, err)
			}
			if s.opts.json {
				return printJSON(s.stdout, map[string]int64{"released": n})
			}
			fmt.Fprintf(s.stdout, "%d jobs are back in their queues. Workers that run now park them again: stop those first.\n", n)
			return nil
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "return the jobs of all limits and queues")
	return cmd
}
