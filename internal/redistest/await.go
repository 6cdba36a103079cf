package redistest

import (
	"testing"
	"time"
)

// settleTime bounds how long servers may take to find each other: seconds, on a busy machine more.
const settleTime = time.Minute

// await polls until the condition holds.
func await(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	deadline := time.NewTimer(settleTime)
	defer deadline.Stop()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !holds() {
		select {
		case <-poll.C:
		case <-deadline.C:
			tb.Fatalf("not within %v: %s", settleTime, what)
		}
	}
}
