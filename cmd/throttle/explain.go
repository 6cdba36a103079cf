package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/worker"
)

func newExplain(opts *options) *cobra.Command {
	var task, queue string
	cmd := &cobra.Command{
		Use:         "explain --task ID",
		SuggestFor:  []string{"why"},
		Annotations: map[string]string{cli.Argument: "--task", "--id": "--task", "--job": "--task"},
		Short:       "Tell why a job is not running: what holds it, since when, and until when",
		Args:        args(0),
		PreRunE: func(*cobra.Command, []string) error {
			if task == "" {
				return usage("want --task ID, the id of the job: see throttle explain --help")
			}
			return nil
		},
		RunE: verb(opts, func(ctx context.Context, s *session, _ []string) error {
			e, err := s.parked.Explain(ctx, task, queue)
			if err != nil {
				return s.unexplained(err)
			}
			if s.opts.json {
				return printJSON(s.stdout, e)
			}
			for _, line := range e.Text() {
				fmt.Fprintln(s.stdout, line)
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&task, "task", "", "`ID` of the job")
	cmd.Flags().StringVar(&queue, "queue", "", "its `queue` (all are searched if not given)")
	return cmd
}

// unexplained adds to the error for a task that cannot be explained what to do about it.
func (s *session) unexplained(err error) error {
	if _, ok := errors.AsType[*worker.AmbiguousTaskError](err); ok {
		return fmt.Errorf("%w with --queue", err)
	}
	switch {
	case errors.Is(err, asynq.ErrTaskNotFound):
		return fmt.Errorf("%w: asynq has no such task%s; it keeps those that are done only for their retention", err, s.where())
	case errors.Is(err, asynq.ErrQueueNotFound):
		return fmt.Errorf("%w: leave --queue out to search all queues", err)
	}
	return err
}
