package admin_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestPageKnowsReasons: the page has words for each reason for which jobs wait until something is fixed, and the docs say what
// to fix.
func TestPageKnowsReasons(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	reasons := regexp.MustCompile(`BlockReason = "(\w+)"`).FindAllStringSubmatch(read("../../asynqlimit/errors.go"), -1)
	if len(reasons) < 8 {
		t.Fatalf("reasons: %v, want 8 at least", reasons)
	}
	for file, has := range map[string]string{"page/jobs.js": " NAME: \"", "page/wrong.js": " NAME: \"", "../../docs/operating.md": "\n| `NAME` |"} {
		text := read(file)
		for _, r := range reasons {
			if want := strings.ReplaceAll(has, "NAME", r[1]); !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", file, want)
			}
		}
	}
}
