package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestOperatorsAtRandom: while a fleet works off a backlog, somebody runs, archives, deletes and
// cancels jobs, pauses queues, and runs everything that waits. No job is lost or stuck: each job
// that was not deleted ends, and what was archived by hand is in the archive.
func TestOperatorsAtRandom(t *testing.T) {
	t.Parallel()
	lasts := 8 * time.Second
	if nightly() {
		lasts = 30 * time.Minute
	}
	s := newSite(t, redistest.Start(t))
	const yaml = `
limits: { api: { rate: 100/1s }, account: { rate: 20/1s, key: payload.account } }
jobs: { "x:": { limits: [api, account] }, "y:blocked": { limits: [account] } }
`
	m := member{yaml: yaml, asynq: asynq.Config{Concurrency: 5, Queues: map[string]int{"a": 3, "b :%é": 1}, DelayedTaskCheckInterval: time.Second},
		handle: func(ctx context.Context, _ *asynq.Task) error {
			if rand.IntN(20) == 0 {
				return ctx.Err()
			}
			return nil
		}}
	for range 3 {
		s.serve(m)
	}
	queues := []string{"a", "b :%é"}
	enqueued, deleted, archived := 0, map[string]bool{}, map[string]bool{}
	began, checked, full := time.Now(), time.Now(), false
	for time.Since(began) < lasts {
		if time.Since(checked) > time.Second {
			checked, full = time.Now(), false
			for i, queue := range queues {
				q := s.queue(queue)
				full = full || q.Pending+q.Retry > 2000 // the limit gives 100 a second: later there have to be few enough
				if q.Archived < 4000 {                  // beyond 9,999 asynq deletes the oldest
					continue
				}
				if _, err := s.inspector.RunAllArchivedTasks(queue); err != nil {
					t.Fatal(err)
				}
				maps.DeleteFunc(archived, func(id string, _ bool) bool { return id[len(id)-1]%2 == byte('0'+i)%2 })
			}
		}
		for range 20 {
			if full {
				break
			}
			payload := fmt.Appendf(nil, `{"account": %d}`, rand.IntN(5))
			s.enqueuePayload("x:job", fmt.Sprint("job", enqueued), payload, asynq.Queue(queues[enqueued%2]), asynq.MaxRetry(rand.IntN(2)), asynq.Retention(time.Hour))
			enqueued++
		}
		for range 20 {
			n := rand.IntN(enqueued)
			id, queue := fmt.Sprint("job", n), queues[n%2]
			var err error
			switch rand.IntN(8) {
			case 0, 1:
				err = s.inspector.RunTask(queue, id)
				if err == nil {
					delete(archived, id)
				}
			case 2:
				info, ierr := s.inspector.GetTaskInfo(queue, id)
				if err = ierr; err == nil && info.State != asynq.TaskStateCompleted {
					if err = s.inspector.ArchiveTask(queue, id); err == nil {
						archived[id] = true
					}
				}
			case 3:
				if err = s.inspector.DeleteTask(queue, id); err == nil {
					deleted[id] = true
					delete(archived, id)
				}
			case 4:
				err = s.inspector.CancelProcessing(id)
			case 5:
				_, err = s.inspector.RunAllRetryTasks(queue)
			case 6:
				err = s.inspector.PauseQueue(queue)
			case 7:
				err = s.inspector.UnpauseQueue(queue)
			}
			_ = err // it may happen that a task is gone, or not in the right state
		}
		select {
		case <-s.more:
		case <-time.After(50 * time.Millisecond):
		}
	}
	for _, queue := range queues {
		if err := s.inspector.UnpauseQueue(queue); err != nil {
			t.Log(err)
		}
	}
	s.await(2*time.Minute, func() (bool, string) {
		a, b := s.queue(queues[0]), s.queue(queues[1])
		left := a.Pending + a.Active + a.Retry + b.Pending + b.Active + b.Retry
		return left == 0, fmt.Sprintf("%+v\n%+v", a, b)
	})
	started := map[string]bool{}
	for _, st := range s.seen("") {
		started[st.id] = true
	}
	lost := 0
	for n := range enqueued {
		id, queue := fmt.Sprint("job", n), queues[n%2]
		info, err := s.inspector.GetTaskInfo(queue, id)
		switch {
		case deleted[id]:
		case errors.Is(err, asynq.ErrTaskNotFound):
			lost++
			t.Errorf("%s is lost", id)
		case err != nil:
			t.Fatal(err)
		case info.LastErr == context.Canceled.Error() && started[id]: // cancelled while its handler ran: a failure
		case info.State == asynq.TaskStateArchived && !archived[id]:
			t.Errorf("%s is archived, and nobody did that: %+v", id, info)
		}
		if lost > 10 {
			t.FailNow()
		}
	}
	t.Logf("%d jobs, %d deleted, %d archived by hand, %d starts", enqueued, len(deleted), len(archived), len(s.seen("")))
	if most := busiest(s.seen(""), 950*time.Millisecond); most > 100 {
		t.Errorf("%d starts within 950ms, want at most 100", most)
	}
	for _, queue := range queues {
		s.await(15*time.Second, func() (bool, string) {
			keys := s.keysLeft(queue)
			return len(keys) == 0, fmt.Sprintf("keys left: %q", keys)
		})
	}
}
