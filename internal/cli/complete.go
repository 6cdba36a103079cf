package cli

import (
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
