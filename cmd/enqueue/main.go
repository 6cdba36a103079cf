// Command enqueue puts jobs into asynq's queues in Redis, from a file with one job per line or
// from its flags.
package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/internal/cli"
)

func main() { cli.Main(newCommand()) }

// options are the flags.
type options struct {
	config  string
	redis   string
	file    string
	strict  bool
	jobType string
	payload string
	count   int64
	queue   string
	replace bool
	json    bool
}

func newCommand() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:         "enqueue",
		Annotations: map[string]string{cli.Argument: "--file"},
		Short:       "Put jobs into asynq's queues",
		Long: `enqueue puts jobs into asynq's queues in Redis, one for each line of a file:

  {"type":"http:request","payload":{"method":"GET","url":"https://api.example.com/v1/x"},"id":"x-1"}

Only type is required; queue, headers, max_retry, timeout, process_in, unique_for
and retention may follow. A bad line is reported with its number, the others are
enqueued, and the exit status is 1. You can enqueue lines with an id again, until a
day after the job is done: no job is there twice. A job that failed for good stays in
asynq's archive under its id. A line with such an id is counted as archived, and the
exit status is 1; with --replace it replaces the archived job. If it cannot, for
example because another job has the line's unique lock, the archived job stays. If an
archived job still has the unique lock that a line needs (unique_for), the line is
counted as archived, too: throttle retry runs the archived job again.`,
		Example: `  enqueue --file jobs.ndjson                     one job a line
  make-jobs | enqueue --file -                   the same from standard input
  enqueue --file jobs.ndjson --strict            all lines, or none if one is bad
  enqueue --type email:send --payload '{"to":"a"}' --count 100`,
		Args: cli.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.check(cmd.Flags().Changed); err != nil {
				return &cli.UsageError{Err: err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return enqueue(cmd.Context(), opts, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&opts.config, "config", "", "configuration `file`, whose redis is used; jobs and pools only for warnings (config.yaml if there is one)")
	flags.StringVar(&opts.redis, "redis", "", "`address` of Redis in place of the configuration's: host:port (several, with commas: a cluster) or redis://user@host:port/db (rediss:// for TLS); its password is REDIS_PASSWORD in the environment")
	flags.StringVar(&opts.file, "file", "", "`file` with one job a line, - is standard input")
	flags.BoolVar(&opts.strict, "strict", false, "enqueue nothing unless every line is good")
	flags.StringVar(&opts.jobType, "type", "", "`type` of the jobs to make, instead of --file")
	flags.StringVar(&opts.payload, "payload", "", "with --type: payload of each job, in `JSON`")
	_ = flags.SetAnnotation("payload", cli.MayBeEmpty, nil)
	flags.Int64Var(&opts.count, "count", 1, "with --type: how many jobs to make")
	flags.StringVar(&opts.queue, "queue", "", "with --type: `queue` of the jobs (default if not given)")
	flags.BoolVar(&opts.replace, "replace", false, "take the place of jobs of the same id that failed and are archived")
	flags.BoolVar(&opts.json, "json", false, "end with the counts as one line of JSON on standard output")
	return cmd
}

// check refuses flags that contradict one another or mean nothing.
func (o options) check(set func(flag string) bool) error {
	switch {
	case set("file") == set("type"):
		return errors.New("give either --file or --type: see enqueue --help")
	case set("file") && (set("payload") || set("count") || set("queue")):
		return errors.New("--payload, --count and --queue go with --type: the lines of a file have payload and queue, and are each one job")
	case set("type") && set("strict"):
		return errors.New("--strict goes with --file")
	case set("type") && set("replace"):
		return errors.New("--replace goes with --file: only the jobs of lines have ids")
	case o.count < 1:
		return fmt.Errorf("--count %d: want 1 or more", o.count)
	}
	return nil
}
