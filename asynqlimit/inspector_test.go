package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// operated is what somebody did with the jobs of a fleet, and what therefore may come of them.
type operated struct {
	s         *site
	queues    []string
	enqueued  int
	due       map[string]time.Time // of scheduled jobs: none runs before, if nobody runs it
	deleted   map[string]bool
	archived  map[string]bool // by hand, and not run since
	runAgain  map[string]int  // how often somebody ran it after it had started
	runBefore map[string]bool // somebody ran it, perhaps before it was due

	mu      sync.Mutex
	started map[string]int
	failed  map[string]int // how often its server's error handler saw it
}

// queueOf returns the queue of a job.
func (o *operated) queueOf(n int) string { return o.queues[n%2] }

// handle fails if somebody cancels the job. Now and then it lasts long enough for that.
func (o *operated) handle(ctx context.Context, _ *asynq.Task) error {
	o.count(ctx, o.started)
	if rand.IntN(20) == 0 {
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return ctx.Err()
}

// count counts something about a task.
func (o *operated) count(ctx context.Context, counts map[string]int) {
	id, _ := asynq.GetTaskID(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	counts[id]++
}

// hasStarted reports whether a job has started at least once.
func (o *operated) hasStarted(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.started[id] > 0
}

// enqueue adds a job. One in ten is scheduled.
func (o *operated) enqueue() {
	o.s.t.Helper()
	id := fmt.Sprint("job", o.enqueued)
	opts := []asynq.Option{asynq.Queue(o.queueOf(o.enqueued)), asynq.MaxRetry(rand.IntN(2)), asynq.Retention(time.Hour)}
	if rand.IntN(10) == 0 {
		in := time.Second + rand.N(2*time.Second)
		if nightly() {
			in = 10*time.Second + rand.N(50*time.Second)
		}
		o.due[id] = time.Now().Add(in).Truncate(time.Second) // asynq keeps whole seconds
		opts = append(opts, asynq.ProcessAt(o.due[id]))
	}
	o.s.enqueuePayload("x:job", id, fmt.Appendf(nil, `{"account": %d}`, rand.IntN(5)), opts...)
	o.enqueued++
}

// ids returns the ids of the tasks that one of the Inspector's lists has.
func (o *operated) ids(queue string, list func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error)) []string {
	o.s.t.Helper()
	tasks, err := list(queue, asynq.PageSize(10_000))
	if err != nil {
		o.s.t.Fatal(err)
	}
	ids := make([]string, len(tasks))
	for i, task := range tasks {
		ids[i] = task.ID
	}
	return ids
}

// ran notes that somebody has run a job that waited, was archived, or had ended.
func (o *operated) ran(id string) {
	o.runBefore[id] = true
	delete(o.archived, id)
	if o.hasStarted(id) {
		o.runAgain[id]++
	}
}

// one does something with one job.
func (o *operated) one() {
	n := rand.IntN(o.enqueued)
	id, queue := fmt.Sprint("job", n), o.queueOf(n)
	inspector := o.s.inspector
	var err error
	switch rand.IntN(8) {
	case 0, 1:
		if err = inspector.RunTask(queue, id); err == nil {
			o.ran(id)
		}
	case 2:
		info, ierr := inspector.GetTaskInfo(queue, id)
		if err = ierr; err == nil && info.State != asynq.TaskStateCompleted {
			if err = inspector.ArchiveTask(queue, id); err == nil {
				o.archived[id] = true
			}
		}
	case 3:
		if err = inspector.DeleteTask(queue, id); err == nil {
			o.deleted[id] = true
			delete(o.archived, id)
		}
	case 4:
		err = inspector.CancelProcessing(id)
	case 5:
		_, err = inspector.RunAllRetryTasks(queue)
	case 6:
		err = inspector.PauseQueue(queue)
	case 7:
		err = inspector.UnpauseQueue(queue)
	}
	_ = err // it may happen that a task is gone, or not in the right state
}

// runArchived runs all archived jobs of a queue.
func (o *operated) runArchived(queue string) {
	o.s.t.Helper()
	for _, id := range o.ids(queue, o.s.inspector.ListArchivedTasks) {
		o.ran(id)
	}
	if _, err := o.s.inspector.RunAllArchivedTasks(queue); err != nil {
		o.s.t.Fatal(err)
	}
}

// archive archives all jobs of a queue that are in some state.
func (o *operated) archive(queue string, all func(string) (int, error)) {
	o.s.t.Helper()
	o.checkArchive(queue)
	if _, err := all(queue); err != nil {
		o.s.t.Fatal(err)
	}
	for _, id := range o.ids(queue, o.s.inspector.ListArchivedTasks) {
		o.archived[id] = true
	}
}

// many does something with all jobs of a queue.
func (o *operated) many() {
	o.s.t.Helper()
	queue, inspector := o.queues[rand.IntN(2)], o.s.inspector
	switch rand.IntN(6) {
	case 0:
		o.archive(queue, inspector.ArchiveAllPendingTasks)
	case 1:
		o.archive(queue, inspector.ArchiveAllRetryTasks)
	case 2:
		o.archive(queue, inspector.ArchiveAllScheduledTasks)
	case 3:
		for _, id := range o.ids(queue, inspector.ListScheduledTasks) {
			o.ran(id)
		}
		if _, err := inspector.RunAllScheduledTasks(queue); err != nil {
			o.s.t.Fatal(err)
		}
	case 4, 5:
		o.runArchived(queue)
	}
}

// checkArchive checks that a queue's archive has only what somebody archived, and what failed.
func (o *operated) checkArchive(queue string) {
	o.s.t.Helper()
	tasks, err := o.s.inspector.ListArchivedTasks(queue, asynq.PageSize(10_000))
	if err != nil {
		o.s.t.Fatal(err)
	}
	for _, task := range tasks {
		failed := task.LastErr == context.Canceled.Error() && o.hasStarted(task.ID) // cancelled while its handler ran
		if !failed && !o.archived[task.ID] {
			o.s.t.Errorf("%s is archived, and nobody did that: %+v", task.ID, task)
		}
	}
}

// checkStarts checks that no job started too early, and that each second start has a cause.
func (o *operated) checkStarts() {
	o.s.t.Helper()
	for _, st := range o.s.seen("") {
		if due, scheduled := o.due[st.id]; scheduled && !o.runBefore[st.id] && st.at.Before(due) {
			o.s.t.Errorf("%s started %v before it was due", st.id, due.Sub(st.at))
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, n := range o.started {
		if most := 1 + o.failed[id] + o.runAgain[id]; n > most {
			o.s.t.Errorf("%s started %d times; it failed %d times, and somebody ran it again %d times", id, n, o.failed[id], o.runAgain[id])
		}
	}
}

// TestOperatorsAtRandom: while a fleet works off a backlog, somebody runs, archives, deletes and
// cancels jobs, pauses queues, and runs or archives everything that waits. No job is lost or stuck: each job
// that was not deleted ends, and what was archived by hand is in the archive. No job starts a second time without a
// cause, and no scheduled job starts too early.
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
	o := &operated{s: s, queues: []string{"a", "b :%é"}, due: map[string]time.Time{}, deleted: map[string]bool{}, archived: map[string]bool{},
		runAgain: map[string]int{}, runBefore: map[string]bool{}, started: map[string]int{}, failed: map[string]int{}}
	m := member{yaml: yaml, asynq: asynq.Config{
		Concurrency: 5, Queues: map[string]int{o.queues[0]: 3, o.queues[1]: 1}, DelayedTaskCheckInterval: time.Second, RetryDelayFunc: quickly,
		ErrorHandler: asynq.ErrorHandlerFunc(func(ctx context.Context, _ *asynq.Task, _ error) { o.count(ctx, o.failed) }),
	}, handle: o.handle}
	for range 3 {
		s.serve(m)
	}
	began, checked, full := time.Now(), time.Now(), false
	for time.Since(began) < lasts {
		if time.Since(checked) > 300*time.Millisecond {
			checked, full = time.Now(), false
			for _, queue := range o.queues {
				q := s.queue(queue)
				full = full || q.Pending+q.Retry+q.Scheduled > 2000 // the limit gives 100 a second: later there have to be few enough
				if q.Archived >= 4000 {                             // beyond 9,999 asynq deletes the oldest
					o.runArchived(queue)
				}
			}
			o.many()
		}
		for range 20 {
			if !full {
				o.enqueue()
			}
		}
		for range 20 {
			o.one()
		}
		select {
		case <-s.more:
		case <-time.After(50 * time.Millisecond):
		}
	}
	for _, queue := range o.queues {
		if err := s.inspector.UnpauseQueue(queue); err != nil {
			t.Log(err)
		}
	}
	s.await(2*time.Minute, func() (bool, string) {
		left, state := 0, ""
		for _, queue := range o.queues {
			q := s.queue(queue)
			left += q.Pending + q.Active + q.Retry + q.Scheduled
			state += fmt.Sprintf("%+v\n", q)
		}
		return left == 0, state
	})
	o.checkStarts()
	lost := 0
	for n := range o.enqueued {
		id := fmt.Sprint("job", n)
		if o.deleted[id] {
			continue
		}
		info, err := s.inspector.GetTaskInfo(o.queueOf(n), id)
		switch {
		case errors.Is(err, asynq.ErrTaskNotFound):
			lost++
			t.Errorf("%s is lost", id)
		case err != nil:
			t.Fatal(err)
		case o.archived[id] && info.State != asynq.TaskStateArchived:
			t.Errorf("somebody archived %s, and nobody ran it since: it is %v", id, info.State)
		}
		if lost > 10 {
			t.FailNow()
		}
	}
	t.Logf("%d jobs, %d scheduled, %d deleted, %d archived by hand, %d starts", o.enqueued, len(o.due), len(o.deleted), len(o.archived), len(s.seen("")))
	if most := busiest(s.seen(""), 950*time.Millisecond); most > 100 {
		t.Errorf("%d starts within 950ms, want at most 100", most)
	}
	for _, queue := range o.queues {
		o.checkArchive(queue)
		s.await(15*time.Second, func() (bool, string) {
			keys := s.keysLeft(queue)
			return len(keys) == 0, fmt.Sprintf("keys left: %q", keys)
		})
	}
}
