package driver

import (
	"context"
	"testing"
)

// Close of very many lines may take longer than it waits for any of them: those that have given everything back are no failure.
func TestFlushOfAStoppedLine(t *testing.T) {
	q := &queue{stopped: make(chan struct{})}
	close(q.stopped)
	late, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if err := q.flush(late); err != nil {
			t.Fatal(err)
		}
	}
}
