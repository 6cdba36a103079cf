package asynqlimit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// TestCriticalStartsBeforeLow: jobs of queue low wait in the room of a server, and then jobs of queue critical. The permits of
// all are due while the only slot is busy. The jobs of critical are first, though they were taken last, if the server is
// strict, and also if their queue has so much more weight.
func TestCriticalStartsBeforeLow(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{true, false} {
		t.Run(fmt.Sprint("strict ", strict), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			const jobs = 5
			busy := make(chan struct{})
			weights := map[string]int{"critical": 2, "low": 1}
			if !strict {
				weights["critical"] = 50
			}
			s.serve(member{yaml: fmt.Sprintf(`
limits: { api: { rate: %d/2s } }
jobs: { "x:limited": { limits: [api], hold: 10s } }
`, 2*jobs), asynq: asynq.Config{Concurrency: 1, StrictPriority: strict, Queues: weights}, opts: asynqlimit.Options{MaxWaiting: 40},
				handle: func(_ context.Context, task *asynq.Task) error {
					if task.Type() == "y:busy" {
						<-busy
					}
					return nil
				}})
			enqueue := func(id, queue string, n int) {
				for i := range n {
					s.enqueue("x:limited", fmt.Sprint(id, i), asynq.Queue(queue))
				}
			}
			enqueue("before", "low", 2*jobs)
			s.awaitStarts("before", 2*jobs, 10*time.Second)
			for _, queue := range []string{"low", "critical"} {
				enqueue(queue, queue, jobs)
				s.await(2*time.Second, func() (bool, string) {
					n := len(s.roomOf(queue))
					return n == jobs, fmt.Sprintf("%d of %s wait in the room", n, queue)
				})
			}
			s.enqueue("y:busy", "busy", asynq.Queue("low"))
			s.awaitStarts("busy", 1, 2*time.Second)
			fleet := operate.NewFleet(s.rdb)
			s.await(10*time.Second, func() (bool, string) { // all permits are due
				used, err := fleet.Inspect(t.Context(), "api")
				return len(used) == 1 && used[0].Reserved == 0, fmt.Sprintf("%+v, %v", used, err)
			})
			close(busy)
			s.awaitStarts("low", jobs, 10*time.Second)
			s.awaitStarts("critical", jobs, 10*time.Second)
			var ids []string
			for _, st := range s.seen("")[2*jobs+1:] {
				ids = append(ids, st.id)
			}
			for _, id := range ids[:jobs] {
				if !strings.HasPrefix(id, "critical") {
					t.Errorf("%s started before the last of queue critical: %v", id, ids)
				}
			}
		})
	}
}
