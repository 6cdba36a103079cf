// Command worker takes jobs from asynq's queues in Redis. It runs them no faster than their
// limits allow, however many workers there are.
package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/strictapi"
)

func main() {
	strictapi.ServeIfAsked() // for a demo
	cli.Main(newCommand())
}

// options are the flags.
type options struct {
	config    string
	named     bool // somebody named that file
	embedded  bool
	demo      bool
	json      bool
	adaptive  bool
	adminAddr string
	health    bool
}

func newCommand() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:         "worker",
		Annotations: map[string]string{cli.Argument: "--config"},
		Short:       "Run asynq jobs no faster than their limits allow",
		Long: `worker takes jobs from asynq's queues in Redis and runs them no faster than
their limits allow, whatever the number of workers that share the limits.

The first SIGTERM, SIGINT or SIGHUP lets running jobs finish, for shutdown_timeout
(8s). Those that need longer go back to their queue and run again. A second SIGTERM
or SIGINT ends the process at once: asynq notices after 1 to 2 minutes that its jobs
have no worker, and they run again. It archives a job whose handler was running on
its last attempt.`,
		Example: `  worker --demo                    see it work, without Redis
  worker --demo --adaptive         the same with an API that does not say its limit, and halves it
  worker --config config.yaml      run until SIGTERM
  worker --embedded                the same with a Redis inside the process
  worker --health                  is the worker of config.yaml here alive? 0 if it is`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set := cmd.Flags().Changed
			opts.named = set("config")
			switch {
			case opts.health && (opts.demo || opts.embedded):
				return &cli.UsageError{Err: errors.New("--health asks a worker that runs: only --config and --admin-addr go with it")}
			case opts.demo && (set("config") || set("embedded") || set("admin-addr")):
				return &cli.UsageError{Err: errors.New("--demo brings its own Redis, API and configuration: only --adaptive and --json go with it")}
			case opts.demo && opts.adaptive:
				return runAdaptiveDemo(cmd.Context(), theHidden(), opts.json, cmd.OutOrStdout(), cmd.ErrOrStderr())
			case opts.demo:
				return runDemo(cmd.Context(), opts.json, cmd.OutOrStdout(), cmd.ErrOrStderr())
			case opts.json || opts.adaptive:
				return &cli.UsageError{Err: errors.New("--json and --adaptive go with --demo")}
			case opts.health:
				return runHealth(cmd.Context(), opts, cmd.OutOrStdout())
			}
			return runWorker(cmd.Context(), opts, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&opts.config, "config", cli.DefaultConfig, "configuration `file`")
	flags.BoolVar(&opts.embedded, "embedded", false, "start a Redis in memory on a loopback port and use it; it forgets everything at the end")
	flags.StringVar(&opts.adminAddr, "admin-addr", "", "serve the dashboard, /metrics, /healthz and /readyz on `host:port`, in place of admin.addr in the configuration")
	flags.BoolVar(&opts.health, "health", false, "ask /healthz of the worker that serves the admin address on this machine; exit with 0 if it is alive, with 2 for a mistake in the flags or the configuration, else with 1")
	flags.BoolVar(&opts.demo, "demo", false, "run 360 jobs on 3 workers against an API that allows 50 requests in any second; needs nothing")
	flags.BoolVar(&opts.adaptive, "adaptive", false, "with --demo: the API does not say its limit, and later cuts it to half; the workers find both, in some 30 s")
	flags.BoolVar(&opts.json, "json", false, "with --demo: end with the summary as one line of JSON on standard output")
	return cmd
}
