// Package cli is what the commands have in common: how they start, what their
// exit statuses mean, and how they say what is wrong.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/internal/plain"
	"github.com/jobthrottle/jobthrottle/internal/version"
)

// Exit statuses.
const (
	Done   = 0
	Failed = 1
	Usage  = 2 // wrong flags, or a configuration that cannot be used
)

// UsageError is a mistake in what the user wrote, as opposed to one that came up at work.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the mistake.
func (e *UsageError) Unwrap() error { return e.Err }

// NoArgs is cobra's check for commands that take nothing but flags.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &UsageError{fmt.Errorf("unexpected argument %q: see %s --help", args[0], cmd.CommandPath())}
	}
	return nil
}

// Main runs a command as the process, and ends it. The first SIGINT or SIGTERM
// ends the command's context; the next has its default effect.
func Main(cmd *cobra.Command) {
	logging.Disable() // go-redis logs every failed connection; the commands say once what is wrong
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(Run(ctx, cmd, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Run runs a command until it is done or ctx ends, says on stderr what was
// wrong, and returns the exit status.
func Run(ctx context.Context, cmd *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	cmd.Version = version.String()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &UsageError{Err: fmt.Errorf("%w: see %s --help", err, cmd.Name())}
	})
	addMan(cmd, args)
	completeFlags(cmd)
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return Done
	}
	fmt.Fprintf(stderr, "%s: %s\n", cmd.Name(), hideSecrets(plain.Lines(err))) // which may quote what others wrote
	if _, ok := errors.AsType[*UsageError](err); ok {
		return Usage
	}
	return Failed
}
