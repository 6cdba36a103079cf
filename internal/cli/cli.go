// Package cli is what the commands have in common: how they start, what their exit statuses
// mean, and how they report errors.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/internal/plain"
	"github.com/jobthrottle/jobthrottle/internal/refusal"
	"github.com/jobthrottle/jobthrottle/internal/version"
)

// Exit statuses.
const (
	Done   = 0
	Failed = 1
	Usage  = 2 // wrong flags, or a configuration that cannot be used
)

// UsageError is a mistake in what the user wrote, and not an error that occurred later.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the mistake.
func (e *UsageError) Unwrap() error { return e.Err }

// ToldError is an error that the command has already reported: Run does not repeat it.
type ToldError struct{ Err error }

func (e *ToldError) Error() string { return e.Err.Error() }

// Unwrap returns the reported error.
func (e *ToldError) Unwrap() error { return e.Err }

// Main runs a command as the process, and ends it. The first SIGINT or SIGTERM ends the
// command's context, and so does SIGHUP, which comes when the terminal is closed, unless it is
// ignored, as under nohup. The next SIGINT or SIGTERM has its default effect.
func Main(cmd *cobra.Command) {
	logging.Disable() // go-redis logs every failed connection; the commands say once what is wrong
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, func() {
		signal.Ignore(syscall.SIGHUP) // it may come from the shell and again from the kernel
		stop()
	})
	os.Exit(Run(ctx, cmd, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// refused adds advice to the error of a Redis that refused a call, unless it has that already. A command without --redis
// gives its own.
func refused(cmd *cobra.Command, err error) error {
	advice := ""
	switch {
	case refusal.LacksRight(err):
		advice = rightsAdvice
	case cmd.Flags().Lookup("redis") != nil || cmd.PersistentFlags().Lookup("redis") != nil:
		advice = names.AdviceOnReply(err)
	}
	if advice == "" || strings.Contains(err.Error(), advice) {
		return err
	}
	return fmt.Errorf("%w: %s", err, advice)
}

// Run runs a command until it is done or ctx ends. It prints errors on stderr, and returns the
// exit status.
func Run(ctx context.Context, cmd *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	cmd.Version = version.String()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetFlagErrorFunc(unknownFlag)
	cmd.PersistentPreRunE = noEmptyFlags
	addMan(cmd, args)
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	addCompletion(cmd, args) // cobra's writes to what is set here
	completeFlags(cmd)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return Done
	}
	if _, told := errors.AsType[*ToldError](err); !told {
		fmt.Fprintf(stderr, "%s: %s\n", cmd.Name(), hideSecrets(plain.Lines(refused(cmd, err)))) // the error may quote what others wrote
	}
	if _, ok := errors.AsType[*UsageError](err); ok {
		return Usage
	}
	return Failed
}
