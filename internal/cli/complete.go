package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completeFlags tells shells what to offer where a command does not say it itself: files only
// for flags that take a file. The completion command of cobra prints the scripts for bash, zsh,
// fish and PowerShell.
func completeFlags(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	flags := func(f *pflag.Flag) {
		if _, told := cmd.GetFlagCompletionFunc(f.Name); told {
			return
		}
		switch value, _ := pflag.UnquoteUsage(f); {
		case f.Name == "config":
			_ = cobra.MarkFlagFilename(cmd.Flags(), f.Name, "yaml", "yml") // fails only for a flag that does not exist
		case value != "file":
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions)
		}
	}
	cmd.LocalFlags().VisitAll(flags)
	for _, below := range cmd.Commands() {
		completeFlags(below)
	}
}

// addCompletion adds cobra's command that prints the completion script of a shell. It says what a user got wrong as the other
// commands do.
func addCompletion(root *cobra.Command, args []string) {
	root.InitDefaultCompletionCmd(args...)
	completion, _, err := root.Find([]string{"completion"})
	if err != nil || completion.Name() != "completion" {
		return // it exists only if it is called, or if there are other commands
	}
	var shells []string
	for _, shell := range completion.Commands() {
		shell.Args = NoArgs
		shells = append(shells, shell.Name())
	}
	completion.Args = func(_ *cobra.Command, args []string) error {
		want := strings.Join(shells, ", ")
		if len(args) > 0 {
			return &UsageError{fmt.Errorf("unknown shell %q: want one of %s", args[0], want)}
		}
		return &UsageError{fmt.Errorf("for which shell? Want one of %s", want)}
	}
	completion.RunE = func(*cobra.Command, []string) error { return nil } // cobra checks Args only then
}
