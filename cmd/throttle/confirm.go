package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/muesli/cancelreader"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// confirmable gives its flag to a verb that destroys something.
func confirmable(cmd *cobra.Command, opts *options) {
	cmd.Flags().BoolVarP(&opts.yes, "yes", "y", false, "do not ask for confirmation")
}

// confirm asks on the terminal whether to go on. Without a terminal it cannot ask: then only
// --yes goes on.
func (s *session) confirm(ctx context.Context, why, question string) error {
	if s.opts.yes {
		return nil
	}
	in, ok := s.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return usage("%s: confirm with --yes, since there is no terminal to ask on", why)
	}
	fmt.Fprint(s.stderr, question+" Type yes to go on: ")
	answers, err := cancelreader.NewReader(in)
	if err != nil {
		return fmt.Errorf("ask for confirmation: %w", err)
	}
	defer answers.Close()
	stop := context.AfterFunc(ctx, func() { answers.Cancel() })
	defer stop()
	answer, err := bufio.NewReader(answers).ReadString('\n')
	if err != nil && answer == "" || strings.ToLower(strings.TrimSpace(answer)) != "yes" {
		return errors.New("not confirmed: nothing was changed")
	}
	return nil
}
