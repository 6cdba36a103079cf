package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// complete is what bash does when somebody presses the tab key behind the words of
// its arguments, with as much of bash-completion as the scripts of the commands use.
const complete = `
_get_comp_words_by_ref() {
	cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD
}
__ltrim_colon_completions() { :; }
_filedir() { COMPREPLY=("files ending in $1"); }
compopt() { :; }
source <("$1" completion bash)
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE=$* COMP_POINT=${#COMP_LINE} COMP_TYPE=9 COMPREPLY=()
"__start_$1"
printf '%s\n' "${COMPREPLY[@]}"
`

// completes fails the test unless bash offers these words.
func (i *image) completes(t *testing.T, words []string, want ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{"--norc", "-c", complete, "bash"}, words...)...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(i.root, i.env["PATH"])+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != strings.Join(want, "\n") {
		t.Errorf("%q: bash offers %q (%v), want %q", words, got, err, want)
	}
}
