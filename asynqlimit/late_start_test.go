package asynqlimit_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestLateStart: what holds a job up between its permit and its handler, here some ends of spans, does not break the
// limit: it begins with another permit. If all of them are held up, jobs run all the same.
func TestLateStart(t *testing.T) {
	t.Parallel()
	const jobs, perSecond, late = 48, 8, 90 * time.Millisecond
	for _, every := range []int64{1, 5} {
		t.Run(fmt.Sprint("every ", every), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			var spans atomic.Int64
			s.serve(member{
				yaml:  "limits: { api: { rate: 8/1s, guard: 50ms } }\njobs: { \"x:limited\": { limits: [api] } }\n",
				asynq: asynq.Config{Concurrency: 10},
				opts: asynqlimit.Options{Trace: func(context.Context, []string, int64) func(error) {
					no := spans.Add(1)
					return func(error) {
						if no%every == 0 {
							time.Sleep(late)
						}
					}
				}},
			})
			for i := range jobs {
				s.enqueue("x:limited", fmt.Sprintf("job%02d", i))
			}
			s.awaitStarts("job", jobs, 12*time.Second)
			if every == 1 {
				return
			}
			starts := s.seen("job")
			for i := perSecond; i < len(starts); i++ {
				if took := starts[i].at.Sub(starts[i-perSecond].at); took < time.Second {
					t.Errorf("%d starts within %v, want at least 1s", perSecond+1, took)
				}
			}
		})
	}
}
