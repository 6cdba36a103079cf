package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobthrottle/jobthrottle/internal/version"
)

// addMan adds a hidden command, man, that writes the manual page of the command. Like cobra's
// completion it exists only when it is called: worker and enqueue have no other commands, and
// --help should not show any.
func addMan(root *cobra.Command, args []string) {
	if len(args) == 0 || args[0] != "man" {
		return
	}
	root.AddCommand(&cobra.Command{
		Use:    "man",
		Short:  "Write the manual page of " + root.Name(),
		Hidden: true,
		Args:   NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return writeMan(cmd.OutOrStdout(), root)
		},
	})
}

// writeMan writes the manual page of a command and of those below it, in the language of
// man(7). All its text is from --help.
func writeMan(out io.Writer, root *cobra.Command) error {
	root.InitDefaultHelpFlag()
	root.InitDefaultVersionFlag()
	below := slices.DeleteFunc(root.Commands(), func(c *cobra.Command) bool { return !c.IsAvailableCommand() })
	var p manPage
	p.macro("TH", strings.ToUpper(root.Name()), "1", "", "jobthrottle "+version.String(), "User Commands")
	p.macro("SH", "NAME")
	p.text(root.Name() + " - " + root.Short)
	p.macro("SH", "SYNOPSIS")
	if len(below) > 1 {
		p.text(root.Name() + " COMMAND [flags]")
	} else {
		p.text(root.UseLine())
	}
	p.macro("SH", "DESCRIPTION")
	p.paragraphs(root.Long)
	p.macro("SH", "COMMANDS")
	for _, c := range below { // completion is always among them
		p.macro("SS", strings.TrimSuffix(c.UseLine(), " [flags]"))
		p.paragraphs(cmp.Or(c.Long, c.Short))
		p.flags(c.LocalNonPersistentFlags())
	}
	p.macro("SH", "OPTIONS")
	p.flags(root.Flags())
	p.macro("SH", "EXAMPLES")
	p.verbatim(strings.Split(root.Example, "\n"))
	p.macro("SH", "EXIT STATUS")
	p.paragraphs(fmt.Sprintf("%d: done. %d: failed. %d: wrong flags, or a configuration that cannot be used.", Done, Failed, Usage))
	_, err := io.WriteString(out, p.String())
	return err
}

// manPage is the source of a page while it is written.
type manPage struct{ strings.Builder }

var manEscapes = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `"`, `\(dq`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`)

// text writes a line as literal text, whatever it begins with.
func (p *manPage) text(line string) {
	if strings.HasPrefix(line, ".") {
		p.WriteString(`\&`)
	}
	p.WriteString(manEscapes.Replace(line) + "\n")
}

func (p *manPage) macro(name string, args ...string) {
	p.WriteString("." + name)
	for _, arg := range args {
		p.WriteString(` "` + manEscapes.Replace(arg) + `"`)
	}
	p.WriteString("\n")
}

// paragraphs writes text as --help shows it: indented text stays as it is.
func (p *manPage) paragraphs(text string) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		lines := strings.Split(paragraph, "\n")
		p.macro("PP")
		if strings.HasPrefix(lines[0], " ") {
			p.verbatim(lines)
			continue
		}
		for _, line := range lines {
			p.text(line)
		}
	}
}

func (p *manPage) verbatim(lines []string) {
	p.macro("nf")
	for _, line := range lines {
		p.text(line)
	}
	p.macro("fi")
}

// flags writes a list of flags, each with its default if --help names one.
func (p *manPage) flags(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		p.macro("TP")
		p.text(strings.TrimSpace(name + " " + value))
		if !slices.Contains([]string{"", "false", "0", "0s", "[]"}, f.DefValue) {
			usage += " (default " + f.DefValue + ")"
		}
		p.text(usage)
	})
}
