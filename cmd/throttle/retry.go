package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
)

func newRetry(opts *options) *cobra.Command {
	var q jobview.RetryQuery
	cmd := &cobra.Command{
		Use:         "retry [--archived] [--failed] [ID...]",
		Annotations: map[string]string{"--task": "IDs are arguments: throttle retry ID", "--id": "IDs are arguments: throttle retry ID", "--job": "IDs are arguments: throttle retry ID"},
		Short:       "Bring archived and failed jobs back to their queues, some or all",
		Long: `retry brings jobs back to their queues, so that workers run them as soon as their
limits allow: all archived jobs, all that failed and wait for their next attempt,
those of a queue or a type, or those with the given ids. Fix the cause first:
throttle jobs --state archived shows why they failed.

A job keeps its payload and its count of retries: a job without retries left has one
attempt. You can stop retry with Ctrl-C and run it again. The exit status is 1 if an
id is not among the archived or failed jobs.`,
		Example: `  throttle retry --archived                        all archived jobs
  throttle retry --archived --type http:request
  throttle retry order-17 order-18                 these, archived or failed`,
		Args: func(_ *cobra.Command, args []string) error {
			for _, id := range args {
				if strings.TrimSpace(id) == "" {
					return usage("an ID is empty: want the ids of jobs, as throttle jobs shows them")
				}
			}
			return nil
		},
		PreRunE: func(_ *cobra.Command, args []string) error {
			if !q.Archived && !q.Failed && len(args) == 0 {
				return usage("want --archived, --failed, or the ids of jobs: see throttle retry --help")
			}
			return nil
		},
		RunE: verb(opts, func(ctx context.Context, s *session, args []string) error {
			q.IDs = args
			return s.retry(ctx, q)
		}),
	}
	flags := cmd.Flags()
	flags.BoolVar(&q.Archived, "archived", false, "jobs that are archived")
	flags.BoolVar(&q.Failed, "failed", false, "jobs that failed and are tried again later")
	flags.StringVar(&q.Queue, "queue", "", "only those of this `queue`")
	flags.StringVar(&q.Type, "type", "", "only those of this `type`; one that ends in : or * matches what begins so")
	return cmd
}

// retry does what the verb does, once its flags are read.
func (s *session) retry(ctx context.Context, q jobview.RetryQuery) error {
	if err := s.queueIsThere(ctx, q.Queue); err != nil {
		return err
	}
	show, stop := progressOn(s.stderr)
	result, err := s.parked.Retry(ctx, q, show)
	stop()
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		return fmt.Errorf("%s back, and then: %w: run it again to go on", areBack(result.Back), err)
	}
	if s.opts.json {
		if err := printJSON(s.stdout, result); err != nil {
			return err
		}
	} else if result.Back > 0 || len(result.Missed) == 0 {
		fmt.Fprintln(s.stdout, outcomeOf(result, q))
	}
	return missed(result.Missed, q)
}

func areBack(n int) string {
	if n == 1 {
		return "1 job is"
	}
	return fmt.Sprintf("%d jobs are", n)
}

func outcomeOf(r jobview.Retried, q jobview.RetryQuery) string {
	if r.Found == 0 {
		of := ""
		if q.Type != "" {
			of = fmt.Sprintf(" of type %q", q.Type)
		}
		return "no such jobs" + of + ": nothing is brought back (throttle jobs lists those that failed and are archived)"
	}
	text := areBack(r.Back) + " back in the queue"
	if r.Back != 1 {
		text += "s"
	}
	if gone := r.Found - r.Back - len(r.Missed); gone > 0 {
		text += fmt.Sprintf("; somebody else moved %d meanwhile", gone)
	}
	return text
}

// shownMissed is how many ids an error names at most.
const shownMissed = 20

// missed is the error for ids that were not brought back.
func missed(ids []string, q jobview.RetryQuery) error {
	if len(ids) == 0 {
		return nil
	}
	state := "failed or archived"
	switch {
	case q.Archived && !q.Failed:
		state = "archived"
	case q.Failed && !q.Archived:
		state = "failed"
	}
	names := make([]string, min(len(ids), shownMissed))
	for i := range names {
		names[i] = strconv.Quote(ids[i])
	}
	more := ""
	if n := len(ids) - len(names); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	of := ""
	if q.Queue != "" {
		of += fmt.Sprintf(" in queue %q", q.Queue)
	}
	if q.Type != "" {
		of += fmt.Sprintf(" of type %q", q.Type)
	}
	return fmt.Errorf("not %s%s: %s%s; throttle explain --task ID says where a job is", state, of, strings.Join(names, ", "), more)
}

// progressOn shows on a terminal how many jobs are back.
func progressOn(out io.Writer) (show func(jobview.Retried), stop func()) {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil, func() {}
	}
	bar := progressbar.NewOptions64(-1, progressbar.OptionSetWriter(file), progressbar.OptionSetDescription("bringing back"),
		progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionFullWidth(), progressbar.OptionClearOnFinish())
	show = func(r jobview.Retried) {
		if bar.GetMax() < 0 {
			bar.ChangeMax(r.Found)
		}
		_ = bar.Set(r.Back)
	}
	return show, func() { _ = bar.Exit() }
}
