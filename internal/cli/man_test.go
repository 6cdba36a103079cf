package cli

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// manual returns what `site man` writes, and what somebody reads of it, if groff is there.
func manual(t *testing.T) (source, shown string) {
	t.Helper()
	root := &cobra.Command{
		Use: "site", Short: "Keep a site's pages", RunE: func(*cobra.Command, []string) error { return nil },
		Long:    ".dotfiles and 'quotes' begin lines here:\n'these too, and \\n is no line break.\n\n  {\"indented\": \"as it is\"}\n  -- \"so\" --\n\nThe end.",
		Example: "  site list            all\n  site show 'a~^`b'    one",
	}
	root.Flags().String("config", "site.yaml", "configuration `file`")
	root.Flags().Bool("json", false, "print JSON")
	list := &cobra.Command{Use: "list NAME", Short: "List pages", Long: "list lists pages.", Run: func(*cobra.Command, []string) {}}
	list.Flags().IntP("limit", "n", 10, "print the first `N` only")
	secret := &cobra.Command{Use: "secret", Hidden: true, Run: func(*cobra.Command, []string) {}}
	root.AddCommand(list, secret)
	var stdout, stderr bytes.Buffer
	if status := Run(t.Context(), root, []string{"man"}, nil, &stdout, &stderr); status != Done || stderr.Len() > 0 {
		t.Fatalf("status %d, %s", status, &stderr)
	}
	source = stdout.String()
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is missing, install it to run this test")
	}
	cmd := exec.Command(groff, "-man", "-ww", "-Tascii", "-rHY=0", "-P-cbou")
	cmd.Stdin = strings.NewReader(source)
	var warnings bytes.Buffer
	cmd.Stderr = &warnings
	text, err := cmd.Output()
	if err != nil || warnings.Len() > 0 {
		t.Errorf("groff: %v, %s", err, &warnings)
	}
	return source, string(text)
}

// TestManual: the page says what --help says, character for character, and nothing
// that it says is taken for a command of man's language.
func TestManual(t *testing.T) {
	source, shown := manual(t)
	if strings.Contains(source, "secret") {
		t.Error("it tells of a hidden command")
	}
	shown = strings.Join(strings.Fields(shown), " ")
	for _, want := range []string{
		"NAME site - Keep a site's pages", "SYNOPSIS site COMMAND [flags]", ".dotfiles and 'quotes' begin lines here: 'these too, and \\n is no line break.",
		`{"indented": "as it is"} -- "so" -- The end.`, "site list NAME list lists pages. -n, --limit N print the first N only (default 10)",
		"site completion", "--config file configuration file (default site.yaml)", "--json print JSON", "--help help for site", "--version",
		"site list all site show 'a~^`b' one", "EXIT STATUS 0: done.",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in\n%s", want, shown)
		}
	}
}

// TestCompletionOfFlags: shells offer files for flags that name files, those of
// configurations for --config, and nothing for all others.
func TestCompletionOfFlags(t *testing.T) {
	root := func() *cobra.Command {
		cmd := &cobra.Command{Use: "site", Args: NoArgs, RunE: func(*cobra.Command, []string) error { return nil }}
		cmd.Flags().String("config", "", "configuration `file`")
		cmd.Flags().String("file", "", "`file` with one job a line")
		cmd.Flags().String("redis", "", "`address` of Redis")
		cmd.Flags().String("told", "", "`color`")
		if err := cmd.RegisterFlagCompletionFunc("told", cobra.FixedCompletions([]string{"red"}, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	for _, tt := range []struct{ flag, want string }{
		{"--config", "yaml\nyml\n:8\n"}, // files that end so
		{"--file", ":0\n"},              // files
		{"--redis", ":4\n"},             // no files
		{"--told", "red\n:4\n"},
		{"--file=x", ":4\n"}, // arguments: there are none
	} {
		var stdout, stderr bytes.Buffer
		if status := Run(t.Context(), root(), []string{"__complete", tt.flag, ""}, nil, &stdout, &stderr); status != Done || stdout.String() != tt.want {
			t.Errorf("%s: status %d, %q, want %q", tt.flag, status, &stdout, tt.want)
		}
	}
}

// TestCompletionScripts: the shells that are here take the scripts.
func TestCompletionScripts(t *testing.T) {
	for shell, check := range map[string]string{"bash": "-n", "zsh": "-n", "fish": "--no-execute"} {
		cmd := &cobra.Command{Use: "site", Args: NoArgs, RunE: func(*cobra.Command, []string) error { return nil }}
		var script, stderr bytes.Buffer
		if status := Run(t.Context(), cmd, []string{"completion", shell}, nil, &script, &stderr); status != Done || script.Len() == 0 {
			t.Errorf("%s: status %d, %s", shell, status, &stderr)
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		syntax := exec.Command(path, check)
		syntax.Stdin = &script
		if out, err := syntax.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
}

// TestCompletionMistakes: each says what to write, with the exit status of a mistake.
func TestCompletionMistakes(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"completion", "site: for which shell? Want one of bash, fish, powershell, zsh\n"},
		{"completion csh", "site: unknown shell \"csh\": want one of bash, fish, powershell, zsh\n"},
		{"completion bash extra", "site: unexpected argument \"extra\": see site completion bash --help\n"},
	} {
		cmd := &cobra.Command{Use: "site", Args: NoArgs, RunE: func(*cobra.Command, []string) error { return nil }}
		var stdout, stderr bytes.Buffer
		if status := Run(t.Context(), cmd, strings.Fields(tt.args), nil, &stdout, &stderr); status != Usage || stderr.String() != tt.want {
			t.Errorf("%s: status %d, %q", tt.args, status, &stderr)
		}
	}
}
