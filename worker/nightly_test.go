package worker

import (
	"os"
	"testing"
)

// nightly says whether tests run at full size, which may take a minute each.
func nightly() bool { return os.Getenv("JOBTHROTTLE_NIGHTLY") == "1" }

// measures marks a test that measures time: at full size, and alone then.
func measures(t *testing.T) {
	if !nightly() {
		t.Parallel()
	}
}
