// Command worker takes jobs from asynq's queues in Redis and runs them no
// faster than their limits allow, whatever the number of workers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
)

func main() {
	logging.Disable() // go-redis logs every failed connection; the worker says itself what is wrong
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// From the first signal on, the next one has its default effect: it ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Exit statuses.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2 // wrong flags, or a configuration that cannot be used
)

// usageError is a mistake in what the user wrote, as opposed to one that came up at work.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// run is the command: it ends when ctx does, and returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	fmt.Fprintln(stderr, "worker:", err)
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	return exitFailed
}

// options are the flags.
type options struct {
	config    string
	embedded  bool
	demo      bool
	json      bool
	adminAddr string
}

func newCommand() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Run asynq jobs no faster than their limits allow",
		Long: `worker takes jobs from asynq's queues in Redis and runs them no faster than
their limits allow, whatever the number of workers that share the limits.

The first SIGTERM or SIGINT lets running jobs finish (shutdown_timeout), the
second ends the process at once; its jobs come back by themselves.`,
		Example: `  worker --demo                    see it work, without Redis
  worker --config config.yaml      run until SIGTERM
  worker --embedded                the same with a Redis inside the process`,
		Version: version(),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{fmt.Errorf("unexpected argument %q: see worker --help", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			set := cmd.Flags().Changed
			switch {
			case opts.demo && (set("config") || set("embedded") || set("admin-addr")):
				return &usageError{errors.New("--demo brings its own Redis, API and configuration: only --json goes with it")}
			case opts.demo:
				return runDemo(cmd.Context(), opts.json, cmd.OutOrStdout(), cmd.ErrOrStderr())
			case opts.json:
				return &usageError{errors.New("--json goes with --demo")}
			}
			return runWorker(cmd.Context(), opts, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w: see worker --help", err)}
	})
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&opts.config, "config", "config.yaml", "configuration `file`")
	flags.BoolVar(&opts.embedded, "embedded", false, "start a Redis in memory on a loopback port and use it; it forgets everything at the end")
	flags.StringVar(&opts.adminAddr, "admin-addr", "", "serve /healthz and /readyz on `host:port`, in place of admin.addr in the configuration")
	flags.BoolVar(&opts.demo, "demo", false, "run 360 jobs on 3 workers against an API that allows 50 requests in any second; needs nothing")
	flags.BoolVar(&opts.json, "json", false, "with --demo: end with the summary as one line of JSON on standard output")
	return cmd
}

// version is the module's version, as the go command recorded it in the binary.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(unknown)"
	}
	return info.Main.Version
}
