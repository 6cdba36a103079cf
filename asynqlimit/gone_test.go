package asynqlimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestTenantsThatAreGone: somebody deletes or archives all jobs in asynq's retry set: those of many tenants, or
// many of one tenant. Who comes then does not wait for them, and nothing of them is left.
func TestTenantsThatAreGone(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*site) (int, error){
		"deleted":  func(s *site) (int, error) { return s.inspector.DeleteAllRetryTasks("default") },
		"archived": func(s *site) (int, error) { return s.inspector.ArchiveAllRetryTasks("default") },
	} {
		for _, each := range []int{1, 200} {
			t.Run(fmt.Sprintf("%s, %d each", name, each), func(t *testing.T) {
				t.Parallel()
				s := newSite(t, redistest.Start(t))
				goOn := s.stopLimit("api", "10/1s")
				const jobs = 1000
				for i := range jobs {
					s.enqueuePayload("x", fmt.Sprintf("gone%04d", i), fmt.Appendf(nil, `{"t":"%d"}`, i/each))
				}
				s.serve(member{yaml: `
limits: { api: { rate: 10/1s, share: payload.t } }
jobs: { x: { limits: [api] } }
`})
				s.awaitWaiting("default", jobs)
				if n, err := end(s); n != jobs || err != nil {
					s.t.Fatal(n, err)
				}
				for i := range 10 {
					s.enqueuePayload("x", fmt.Sprint("new", i), fmt.Appendf(nil, `{"t":"new%d"}`, i%2))
				}
				goOn()
				s.awaitStarts("new", 10, 8*time.Second) // two seconds; if one tenant left at a time, a minute
				if n := len(s.seen("gone")); n > 0 {
					s.t.Errorf("%d of the others started", n)
				}
				s.await(10*time.Second, func() (bool, string) {
					left := s.keysLeft("default")
					return len(left) == 0, fmt.Sprintf("keys left: %q", left)
				})
			})
		}
	}
}
