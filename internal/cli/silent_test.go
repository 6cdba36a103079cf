package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestSilentRedis: a Redis that does not answer is not one that is not started. Either form of the address is tried for as long.
func TestSilentRedis(t *testing.T) {
	for _, form := range []string{"", "redis://"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			addr, _ := redistest.Silent(t)
			err := ping(t, "", form+addr)
			if err == nil || !strings.Contains(err.Error(), "no answer within 5s") || !strings.Contains(err.Error(), "firewalls") || strings.Contains(err.Error(), "start redis-server") {
				t.Errorf("%v, want that it did not answer within 5s, and what to check", err)
			}
		})
	}
}

// TestInterruptedPing: a command that is told to end does not wait for a Redis that does not answer.
func TestInterruptedPing(t *testing.T) {
	for _, form := range []string{"", "redis://"} {
		addr, connected := redistest.Silent(t)
		r, err := OpenRedis("", form+addr)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Ping(ctx) }()
		<-connected
		cancel()
		select {
		case err := <-ended:
			if err == nil || err.Error() != "interrupted" {
				t.Errorf("%s: %v", form+addr, err)
			}
		case <-time.After(2 * time.Second): // the shortest timeout of go-redis is 3s
			t.Errorf("%s: it waits for an answer", form+addr)
		}
		if err := r.Client.Close(); err != nil {
			t.Error(err)
		}
	}
}
