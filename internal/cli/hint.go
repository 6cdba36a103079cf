package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobthrottle/jobthrottle/internal/similar"
)

// Argument is the annotation of a command that says what an argument was meant for that it does not take: a flag, such as
// "--file", or a sentence. The annotation of a flag that does not exist, such as "--id", says in the same way what was meant.
const Argument = "argument"

// NoArgs is cobra's check for commands that take nothing but flags.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Unexpected(cmd, args[0])
	}
	return nil
}

// Unexpected is the error for an argument that a command does not take.
func Unexpected(cmd *cobra.Command, arg string) error {
	meant := cmd.Annotations[Argument]
	flag := cmd.Flags().Lookup(arg)
	switch {
	case flag != nil && !flag.Hidden:
		meant = "--" + arg
	case strings.HasPrefix(arg, "redis://"), strings.HasPrefix(arg, "rediss://"):
		if meant = ""; cmd.Flags().Lookup("redis") != nil {
			meant = "--redis " + arg
		}
	case strings.HasPrefix(meant, "--"):
		meant += " " + arg
	}
	return &UsageError{fmt.Errorf("unexpected argument %q%s", arg, seeHelp(cmd, hint(meant)))}
}

// unknownFlag is the error for flags that the command cannot read.
func unknownFlag(cmd *cobra.Command, err error) error {
	return &UsageError{fmt.Errorf("%w%s", err, seeHelp(cmd, meantFlag(cmd, err)))}
}

// meantFlag says which flag an unknown one may mean.
func meantFlag(cmd *cobra.Command, err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return ""
	}
	name, tail := unknown.GetSpecifiedName(), unknown.GetSpecifiedShortnames()
	tail, _, _ = strings.Cut(tail, "=")
	if meant := cmp.Or(cmd.Annotations["--"+name], cmd.Annotations["--"+tail]); meant != "" {
		return hint(meant)
	}
	var flags []string
	long := ""
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		flags = append(flags, "--"+f.Name)
		if len(tail) > 1 && strings.HasSuffix(f.Name, tail) { // -config is read as -c -o -n..., -health as -h -e...
			long = "--" + f.Name
		}
	})
	if long != "" {
		return hint(long)
	}
	return similar.Hint("--"+name, flags)
}

// MayBeEmpty is the annotation of a flag that may be given without a text.
const MayBeEmpty = "may be empty"

// noEmptyFlags refuses other flags that are given without a text: in a script, a variable may be unset.
func noEmptyFlags(cmd *cobra.Command, _ []string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if _, may := f.Annotations[MayBeEmpty]; !may && f.Value.Type() != "stringArray" && f.Value.String() == "" {
			err = &UsageError{fmt.Errorf("--%s is empty: give it a value, or leave it out", f.Name)}
		}
	})
	return err
}

// hint is a suggestion for the end of an error: what to write, if it begins as a flag does, or else a sentence.
func hint(meant string) string {
	switch {
	case meant == "":
		return ""
	case strings.HasPrefix(meant, "--"):
		return fmt.Sprintf(": did you mean %q?", meant)
	}
	return ": " + meant
}

// seeHelp is a hint, and where the help is.
func seeHelp(cmd *cobra.Command, hint string) string {
	help := "see " + cmd.CommandPath() + " --help"
	if strings.HasSuffix(hint, "?") {
		return hint + " " + help
	}
	return hint + ": " + help
}
