package worker

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jobthrottle/jobthrottle/config"
)

// docs/redis.md grants exactly what a worker asks for at its start.
func TestDocumentedRights(t *testing.T) {
	text, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Limits = map[string]config.Limit{"api": {Rate: "1/1s"}}
	_, rest, _ := strings.Cut(string(text), "ACL SETUSER worker reset on >PASSWORD")
	block, _, _ := strings.Cut(rest, "```")
	got, want := strings.Fields(block), rights(cfg)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the documented rights are %q, a worker needs %q", got, want)
	}
	for _, command := range pageCommands {
		if !strings.Contains(rest, "`+"+command+"`") {
			t.Errorf("+%s of the admin address is not documented", command)
		}
	}
}
