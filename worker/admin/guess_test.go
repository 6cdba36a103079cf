package admin_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/worker/admin"
)

// TestGuessesLockNobodyOut: however many wrong tokens somebody sends, and however fast, the
// right one passes at once.
func TestGuessesLockNobodyOut(t *testing.T) {
	s := newSite(t, 1, twoLimits, token)
	s.awaitCreated("api")
	guessing, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 2 * admin.MaxGuessing {
		group.Go(func() {
			for guessing.Err() == nil {
				s.ask(asked{path: "/api/limits/api/pause", body: `{"for": "1m"}`, edit: header("Authorization", "Bearer guess")})
			}
		})
	}
	s.await(10*time.Second, func() (bool, string) {
		status, body := s.ask(asked{path: "/api/limits/api/pause", body: `{"for": "1m"}`, edit: header("Authorization", "Bearer guess")})
		return status == http.StatusTooManyRequests, fmt.Sprint("so many guesses are not too many: ", status, body)
	})
	for range 20 {
		if status, body := s.ask(asked{path: "/api/limits/api/resume", body: `{}`}); status != http.StatusOK {
			t.Errorf("the right token meanwhile: %d %s", status, body)
		}
	}
	stop()
	group.Wait()
}
