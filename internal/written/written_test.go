package written_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jobthrottle/jobthrottle/internal/written"
)

func TestInto(t *testing.T) {
	old, other := written.Part("go run ./a", "old"), written.Part("go run ./b", "theirs\n")
	for page, want := range map[string]string{ // "" is refused
		"before\n" + old + "between\n" + other + "after\n": "before\n" + written.Part("go run ./a", "new") + "between\n" + other + "after\n",
		old:                 written.Part("go run ./a", "new"),
		"somebody's text\n": "",
		other:               "",
		"<!-- end of what go run ./a writes -->\n<!-- written by go run ./a -->\n": "",
	} {
		file := filepath.Join(t.TempDir(), "page.md")
		if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		err := written.Into(file, "go run ./a", "new\n")
		got, readErr := os.ReadFile(file)
		switch {
		case readErr != nil:
			t.Fatal(readErr)
		case want == "" && (err == nil || !strings.Contains(err.Error(), file) || string(got) != page):
			t.Errorf("%q: %v, and it is %q", page, err, got)
		case want != "" && (err != nil || string(got) != want):
			t.Errorf("%q becomes %q, %v", page, got, err)
		}
	}
}
