package asynqlimit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestIdleServerStartsThemAll: all slots of one server run long jobs, and as many jobs wait in its room. Another server is
// idle. It starts all jobs that come now, or that are called from their line now, within a second.
func TestIdleServerStartsThemAll(t *testing.T) {
	t.Parallel()
	for name, inLine := range map[string]bool{"fresh": false, "in line": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			const slots = 20
			ended := make(chan struct{})
			defer close(ended)
			m := member{name: "full", yaml: `
limits: { api: { rate: 1000/1s }, slow: { rate: 20/5m } }
jobs: { "x:limited": { limits: [api] }, "x:slow": { limits: [slow], hold: 6m } }
`, asynq: asynq.Config{Concurrency: slots}, opts: asynqlimit.Options{MaxWaiting: 3 * slots}}
			m.handle = func(_ context.Context, task *asynq.Task) error {
				if task.Type() == "y:long" {
					select {
					case <-ended:
					case <-time.After(30 * time.Second):
					}
				}
				return nil
			}
			enqueue := func(typ, id string) {
				for i := range slots {
					s.enqueue(typ, fmt.Sprint(id, i))
				}
			}
			goOn := s.stopLimit("api", "1000/1s")
			s.serve(m)
			enqueue("x:slow", "before")
			s.awaitStarts("before", slots, 10*time.Second) // the others of this limit wait for 5 minutes
			enqueue("x:slow", "waits")
			s.await(10*time.Second, func() (bool, string) {
				n := len(s.roomOf("default"))
				return n == slots, fmt.Sprint(n, " wait in the room")
			})
			if inLine {
				enqueue("x:limited", "job")
				s.await(10*time.Second, func() (bool, string) {
					q := s.queue("default")
					return q.Retry == slots, fmt.Sprintf("%+v", q)
				})
			} else {
				goOn()
			}
			enqueue("y:long", "long")
			s.awaitStarts("long", slots, 10*time.Second)
			m.name = "idle"
			s.serve(m)
			s.enqueue("y:short", "short") // the first server has no slot for it
			s.awaitStarts("short", 1, 10*time.Second)

			began := time.Now()
			if inLine {
				goOn()
			} else {
				enqueue("x:limited", "job")
			}
			starts := s.awaitStarts("job", slots, 10*time.Second)
			took := starts[slots-1].at.Sub(began)
			t.Logf("%d jobs in %v", slots, took)
			if took > time.Second {
				t.Errorf("the last of %d jobs started after %v, want a second at most", slots, took)
			}
			for _, st := range starts {
				if st.server != "idle" {
					t.Errorf("%s started in the server that is full", st.id)
				}
			}
			if n := len(s.roomOf("default")); n != slots {
				t.Errorf("%d wait in the room, want the %d that waited there before", n, slots)
			}
		})
	}
}
