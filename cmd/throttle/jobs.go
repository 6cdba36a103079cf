package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/internal/plain"
	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/internal/similar"
)

// jobsAtOnce is how many jobs the verb prints by default.
const jobsAtOnce = 100

func newJobs(opts *options) *cobra.Command {
	var q jobview.JobQuery
	var state string
	most := jobsAtOnce
	cmd := &cobra.Command{
		Use:         "jobs",
		Annotations: map[string]string{cli.Argument: "--limit"},
		Short:       "List the jobs that wait, that failed and that are archived, with the reason",
		Long: `jobs lists the jobs of the whole fleet that do not run: those that wait (for a limit,
until something is fixed, for a worker), those that failed and are tried again,
and those that are archived, which asynq does not run again by itself. For each it
says why, since when, and when it is tried next.

It prints the first 100, and how to list the next ones. --max 0 prints all. The
newest archived jobs come first. throttle explain says more about one job.`,
		Example: `  throttle jobs --limit stripe                 what waits for this limit, in its order
  throttle jobs --state archived --type http:request
  throttle jobs --max 0 --json | jq -r 'select(.why == "host_not_allowed").id'`,
		Args: func(cmd *cobra.Command, given []string) error {
			if len(given) > 0 && slices.Contains(jobview.JobStates, jobview.JobState(given[0])) {
				return usage("unexpected argument %q: did you mean \"--state %s\"?", given[0], given[0])
			}
			return args(0)(cmd, given)
		},
		PreRunE: func(*cobra.Command, []string) error {
			var err error
			if q.State, err = jobState(state); err != nil {
				return err
			}
			if most < 0 {
				return usage("--max %d: want 1 or more, or 0 for all", most)
			}
			return nil
		},
		RunE: verb(opts, func(ctx context.Context, s *session, _ []string) error { return s.jobs(ctx, q, most) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&q.Limit, "limit", "", "only jobs that wait for the limit `NAME`, or for one of its values; with --state failed or archived, those that have it")
	flags.StringVar(&state, "state", "", "only those in this `STATE`: waiting, failed or archived")
	flags.StringVar(&q.Queue, "queue", "", "only those of this `queue`")
	flags.StringVar(&q.Type, "type", "", "only those of this `type`; one that ends in : or * matches what begins so")
	flags.IntVar(&most, "max", jobsAtOnce, "print the first `N` only (0 is all)")
	flags.StringVar(&q.After, "after", "", "go on behind an earlier list: the `cursor` that it ended with")
	_ = cmd.Flags().SetAnnotation("after", cli.MayBeEmpty, nil) // before the first page of a loop
	completeWith(cmd, "state", "waiting", "failed", "archived")
	return cmd
}

// jobState parses a state.
func jobState(text string) (jobview.JobState, error) {
	state := jobview.JobState(text)
	if text == "" || slices.Contains(jobview.JobStates, state) {
		return state, nil
	}
	names := make([]string, len(jobview.JobStates))
	for i, s := range jobview.JobStates {
		names[i] = string(s)
	}
	return "", usage("--state %q: want waiting, failed or archived%s", text, similar.Hint(text, names))
}

// completeWith completes the values of a flag.
func completeWith(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// jobs does what the verb does, once its flags are read.
func (s *session) jobs(ctx context.Context, q jobview.JobQuery, most int) error {
	if err := s.queueIsThere(ctx, q.Queue); err != nil {
		return err
	}
	plans, err := s.plans(q)
	if err != nil {
		return err
	}
	printed := 0
	for {
		if most > 0 {
			q.Max = most - printed
		}
		page, err := s.parked.JobsOfLimit(ctx, q, plans)
		switch {
		case errors.Is(err, jobview.ErrBadCursor):
			return usage("--after %q: want the cursor that a list of jobs ended with", q.After)
		case err != nil:
			return err
		}
		if err := s.printJobs(page, printed == 0); err != nil {
			return err
		}
		printed += len(page.Jobs)
		if q.After = page.Next; q.After == "" {
			break
		}
		if most > 0 && printed >= most {
			fmt.Fprintf(s.stderr, "%s shown; go on with --after %s, or see all with --max 0\n", countJobs(printed), q.After)
			return nil
		}
	}
	if printed == 0 {
		return s.noJobs(ctx, q)
	}
	if !s.opts.json {
		fmt.Fprintln(s.stderr, countJobs(printed))
	}
	return nil
}

// plans says which jobs have a limit; nil if there is no configuration, and the query needs none.
func (s *session) plans(q jobview.JobQuery) (*plan.Jobs, error) {
	needed := q.Limit != "" && (q.State == jobview.Failed || q.State == jobview.Archived)
	switch _, known := s.configured(q.Limit); {
	case s.config == nil && needed:
		return nil, usage("--limit %q with --state %s: only a configuration says which jobs have the limit: give --config with the file of the workers, or --type in place of --limit", q.Limit, q.State)
	case s.config == nil:
		return nil, nil
	case needed && !known && s.limitOf(q.Limit).Key == "":
		return nil, usage("no limit %q in the configuration, which says which jobs have it%s", q.Limit, similar.Hint(q.Limit, slices.Sorted(maps.Keys(s.config.Limits))))
	}
	plans, err := plan.New(s.config)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	return plans, nil
}

// noJobs says that there are no jobs, and what may be misspelt.
func (s *session) noJobs(ctx context.Context, q jobview.JobQuery) error {
	which := "no jobs wait, failed or are archived"
	switch q.State {
	case jobview.Waiting:
		which = "no jobs wait"
	case jobview.Failed:
		which = "no jobs failed and are tried again"
	case jobview.Archived:
		which = "no jobs are archived"
	}
	var of []string
	if q.Limit != "" {
		if err := s.limitIsThere(ctx, q.Limit); err != nil {
			return err
		}
		if q.State == "" {
			which = "no jobs wait"
		}
		of = append(of, "limit "+q.Limit)
	}
	if q.Queue != "" {
		of = append(of, "queue "+q.Queue)
	}
	if q.Type != "" {
		of = append(of, "type "+q.Type)
	}
	if len(of) > 0 {
		which += " (" + strings.Join(of, ", ") + ")"
	}
	fmt.Fprintln(s.stderr, plain.Text(which+s.where()))
	return nil
}

// limitIsThere refuses a limit that is neither in the configuration nor in Redis.
func (s *session) limitIsThere(ctx context.Context, limit string) error {
	if _, known := s.configured(limit); known {
		return nil
	}
	t, err := s.target(ctx, limit)
	if err != nil || len(t.values) > 0 {
		return err
	}
	if there, err := s.existsAsAny(ctx, limit); err != nil {
		return err
	} else if !there {
		return s.missing(ctx, limit)
	}
	return nil
}

// queueIsThere refuses a queue in which nobody has enqueued a job and which no pool of the
// configuration serves.
func (s *session) queueIsThere(ctx context.Context, queue string) error {
	if queue == "" {
		return nil
	}
	queues, err := s.parked.Queues(ctx)
	if err != nil {
		return err
	}
	if s.config != nil {
		for _, p := range s.config.Pools {
			queues = slices.AppendSeq(queues, maps.Keys(p.QueueWeights()))
		}
	}
	if slices.Contains(queues, queue) {
		return nil
	}
	return fmt.Errorf("no queue %q%s%s (a queue appears with its first job)", queue, s.where(), similar.Hint(queue, queues))
}

func countJobs(n int) string {
	if n == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", n)
}

// printJobs prints a page of a list.
func (s *session) printJobs(page jobview.JobPage, first bool) error {
	if s.opts.json {
		for _, j := range page.Jobs {
			if err := printJSON(s.stdout, j); err != nil {
				return err
			}
		}
		return nil
	}
	if len(page.Jobs) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(s.stdout, 0, 0, 2, ' ', 0)
	if first {
		fmt.Fprintln(w, "STATE\tQUEUE\tTYPE\tID\tSINCE\tNEXT\tREASON")
	}
	for _, j := range page.Jobs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", j.State, cell(j.Queue), cell(j.Type), plain.Text(j.ID),
			ago(page.At, j.Since), next(page.At, j), reason(j))
	}
	return w.Flush()
}

// clipped is how much text from others a cell of the table shows at most.
const clipped = 120

func cell(text string) string {
	if runes := []rune(text); len(runes) > clipped {
		text = string(runes[:clipped]) + "..."
	}
	return plain.Text(text)
}

func ago(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return human(max(now.Sub(t), 0)) + " ago"
}

func next(now time.Time, j jobview.Job) string {
	switch {
	case j.State == jobview.Archived:
		return "never"
	case j.Next.IsZero():
		return "-"
	}
	in := soon(j.Next.Sub(now))
	if in != "now" {
		in = "in " + in
	}
	return in
}

// reason says in words why a job waits, or why it failed.
func reason(j jobview.Job) string {
	if j.State != jobview.Waiting {
		text := j.Error
		if text == "" && j.State == jobview.Archived {
			text = "somebody archived it"
		}
		if j.State == jobview.Failed {
			text = fmt.Sprintf("retry %d of %d: %s", j.Retried, j.MaxRetry, text)
		}
		return cell(text)
	}
	switch j.Why {
	case jobview.WhyLimit:
		return cell("limit " + j.Limit)
	case jobview.WhyPaused:
		return cell("limit " + j.Limit + ", which is paused")
	case jobview.WhyCalled:
		return cell("limit " + j.Limit + " has called it: it is on its way")
	case jobview.WhyWorker:
		return "waits in a worker"
	case jobview.WhyQueue:
		return cell("queue " + j.Queue + " is paused in asynq")
	case jobview.WhySlot:
		return "waits in its queue for a worker"
	}
	why := j.Error
	if _, rest, ok := jobview.BlockedFor(why); ok {
		why = rest
	}
	return cell(j.Why + ": " + why)
}
