package asynqlimit_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestSlowSpans: however long it takes to end the span of a wait, the job begins as soon as it has its permits: else
// the limit would be broken.
func TestSlowSpans(t *testing.T) {
	t.Parallel()
	const jobs, perSecond, late = 48, 8, 500 * time.Millisecond
	for name, isLate := range map[string]func(no int, again bool) bool{
		"all":  func(int, bool) bool { return true },
		"some": func(no int, again bool) bool { return no%5 == 0 && !again },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			var before sync.Map // the ids of jobs that were held up before
			s.serve(member{
				yaml:  "limits: { api: { rate: 8/1s, guard: 200ms } }\njobs: { \"x:limited\": { limits: [api] } }\n",
				asynq: asynq.Config{Concurrency: 10},
				opts: asynqlimit.Options{Trace: func(ctx context.Context, _ []string, _ int64) func(error) {
					id, _ := asynq.GetTaskID(ctx)
					return func(err error) {
						no, _ := strconv.Atoi(strings.TrimPrefix(id, "job"))
						if _, again := before.Load(id); err == nil && isLate(no, again) {
							before.Store(id, true)
							time.Sleep(late)
						}
					}
				}},
			})
			for i := range jobs {
				s.enqueue("x:limited", fmt.Sprintf("job%02d", i))
			}
			s.awaitStarts("job", jobs, 20*time.Second)
			if name == "all" {
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
