package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/plain"
	"github.com/jobthrottle/jobthrottle/producer"
)

func newCheck(opts *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:         "check FILE",
		Annotations: map[string]string{"--file": "FILE is an argument: throttle check jobs.ndjson"},
		Short:       "Tell which jobs of a file would not run: no handler, no value for a key, a host that is not allowed",
		Long: `check reads job lines, as enqueue does, and says which of them would not run, and
why: the line is wrong, no worker serves its queue or has a handler for its type, a
limit's key or its permits find no value, it costs more than its limit gives at once,
or its host is not allowed. It enqueues nothing. FILE - is standard input.

It uses the configuration, the limits in Redis and what running workers say. If Redis
does not answer, it says so and uses the configuration alone. The exit status is 1
if a job would not run.`,
		Example: `  throttle check jobs.ndjson
  make-jobs | throttle check - --json | jq -r .line`,
		Args: args(1, "FILE, the file of job lines"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opened, err := cli.OpenRedis(opts.config, opts.redis)
			if err != nil {
				return err
			}
			opened.Tell(cmd.ErrOrStderr())
			if opened.Config == nil {
				return errors.Join(usage("want --config, the configuration of the workers that are to run the jobs"), opened.Client.Close())
			}
			err = check(cmd, opts, opened, args[0])
			return errors.Join(err, opened.Client.Close())
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return []cobra.Completion{"ndjson", "jsonl", "json"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	return cmd
}

// shownAlike is how many lines with a problem of the same kind and job type are shown at most.
const shownAlike = 20

// check does what the verb does, once its flags are read.
func check(cmd *cobra.Command, opts *options, opened cli.Redis, name string) error {
	ctx, stdout, stderr := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	in, err := cli.OpenInput(ctx, name, cmd.InOrStdin())
	if err != nil {
		return err
	}
	defer in.Close()
	for _, w := range opened.Config.Warnings() {
		fmt.Fprintln(stderr, plain.Text("warning: "+w.Error()))
	}
	c, err := newChecker(opened)
	if err != nil {
		return err
	}
	unknown := c.ask(ctx)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	for _, err := range unknown {
		fmt.Fprintln(stderr, plain.Text("warning: "+err.Error()))
	}
	lines, wrong, alike := 0, 0, map[string]int{}
	for r := producer.NewReader(in); ; {
		line, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("interrupted: %s checked, %d would not run", countJobs(lines), wrong)
		case err != nil:
			return fmt.Errorf("cannot read %s: %w", in.Name, err)
		}
		lines++
		problems, err := c.check(ctx, line)
		if err != nil {
			return err
		}
		if len(problems) == 0 {
			continue
		}
		wrong++
		if err := printProblems(stdout, opts.json, line, problems, alike); err != nil {
			return err
		}
	}
	if lines == 0 {
		return fmt.Errorf("%s has no job lines: write one JSON object a line", in.Name)
	}
	for _, note := range c.notes(alike, opts.json) {
		fmt.Fprintln(stderr, plain.Text(note))
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %s would not run", wrong, countJobs(lines))
	}
	if !opts.json {
		fmt.Fprintf(stdout, "%s checked: nothing keeps them from running\n", countJobs(lines))
	}
	return nil
}

// printProblems prints what is wrong with a line.
func printProblems(out io.Writer, asJSON bool, line producer.Line, problems []problem, alike map[string]int) error {
	if asJSON {
		return printJSON(out, struct {
			Line     int       `json:"line"`
			ID       string    `json:"id,omitempty"`
			Type     string    `json:"type,omitempty"`
			Problems []problem `json:"problems"`
		}{line.Number, line.Job.ID, line.Job.Type, problems})
	}
	for _, p := range problems {
		kind := p.Reason + " " + line.Job.Type
		if alike[kind]++; alike[kind] > shownAlike {
			continue
		}
		if _, err := fmt.Fprintln(out, plain.Text(fmt.Sprintf("line %d: %s: %s", line.Number, p.Reason, p.Text))); err != nil {
			return err
		}
	}
	return nil
}
