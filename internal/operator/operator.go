// Package operator is somebody who acts on the jobs of a fleet at random, as people do with asynq's
// Inspector. It writes down what it did, and judges what came of the jobs: none is lost, and none
// starts again without a cause.
package operator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// Options are what an operator works with.
type Options struct {
	// Inspector must not repeat commands by itself: then a command that was done and whose reply was
	// lost cannot look like one that was refused.
	Inspector *asynq.Inspector
	// Redis is where errors tell from what became of a job.
	Redis  redis.UniversalClient
	Queues []string
	Rand   *rand.Rand
	Now    func() time.Duration
	// Failed reports whether an archived job may be there because it failed as often as it may.
	Failed func(*asynq.TaskInfo) bool
}

// Operator is for one goroutine.
type Operator struct {
	Options

	ids        []string // in the order in which they were added
	jobs       map[string]*job
	cancelled  []Cause
	unexpected []error // what was found while it worked
}

// job is what was done to a job.
type job struct {
	queue   string
	due     time.Duration // of a scheduled job; 0: at once
	deleted answer
	shelved answer // archived by hand, and not run since
	acts    []act

	completed bool // in the end
}

// answer says whether something was done. It is perhaps if Redis did not answer.
type answer int

const (
	no answer = iota
	perhaps
	yes
)

// act is what was done to a job, and when.
type act struct {
	runs       bool // otherwise it deletes or archives
	done       answer
	begin, end time.Duration
}

// New returns an operator who knows no jobs yet.
func New(opts Options) *Operator { return &Operator{Options: opts, jobs: map[string]*job{}} }

// Add tells the operator of a job that was enqueued. A due of 0 is that of a job that is not scheduled.
func (o *Operator) Add(id, queue string, due time.Duration) {
	o.ids = append(o.ids, id)
	o.jobs[id] = &job{queue: queue, due: due}
}

// outcome tells from an error whether something was done.
func outcome(err error) answer {
	switch {
	case err == nil:
		return yes
	case errors.Is(err, asynq.ErrTaskNotFound), errors.Is(err, asynq.ErrQueueNotFound), strings.Contains(err.Error(), "FAILED_PRECONDITION"):
		return no
	}
	return perhaps
}

// note writes down what was done to a job since begin.
func (o *Operator) note(id string, runs bool, done answer, begin time.Duration) {
	j := o.jobs[id]
	if done == no || j == nil {
		return
	}
	j.acts = append(j.acts, act{runs, done, begin, o.Now()})
	switch {
	case runs && done == yes:
		j.shelved = no
	case runs && j.shelved == yes:
		j.shelved = perhaps
	}
}

// One does something with one job. Half of the time it is one of the newest.
func (o *Operator) One(ctx context.Context) error {
	if len(o.ids) == 0 {
		return nil
	}
	n := len(o.ids)
	if o.Rand.IntN(2) == 0 {
		n = min(n, 500)
	}
	id := o.ids[len(o.ids)-1-o.Rand.IntN(n)]
	j, begin := o.jobs[id], o.Now()
	switch o.Rand.IntN(8) {
	case 0, 1:
		return o.Run(ctx, id)
	case 2:
		info, err := o.Inspector.GetTaskInfo(j.queue, id)
		if err != nil || info.State == asynq.TaskStateCompleted {
			return nil
		}
		done, err := o.settled(ctx, o.Inspector.ArchiveTask(j.queue, id))
		o.note(id, false, done, begin)
		j.shelved = max(j.shelved, done)
		return err
	case 3:
		done, err := o.settled(ctx, o.Inspector.DeleteTask(j.queue, id))
		o.note(id, false, done, begin)
		if j.deleted = max(j.deleted, done); done == yes {
			j.shelved = no
		}
		return err
	case 4:
		o.cancel(j.queue)
	case 5:
		_, _ = o.Inspector.RunAllRetryTasks(j.queue) // those that have started failed, and start again anyway
	case 6:
		_ = o.Inspector.PauseQueue(j.queue) // an error: it is paused already, or Redis is away
	case 7:
		_ = o.Inspector.UnpauseQueue(j.queue)
	}
	return nil
}

// Run runs a job.
func (o *Operator) Run(ctx context.Context, id string) error {
	begin := o.Now()
	done, err := o.settled(ctx, o.Inspector.RunTask(o.jobs[id].queue, id))
	o.note(id, true, done, begin)
	return err
}

// cancel cancels one of the jobs that are active.
func (o *Operator) cancel(queue string) {
	active, err := o.Inspector.ListActiveTasks(queue, asynq.PageSize(100))
	if err != nil || len(active) == 0 {
		return
	}
	id := active[o.Rand.IntN(len(active))].ID
	_ = o.Inspector.CancelProcessing(id) // an error: perhaps it was cancelled
	o.cancelled = append(o.cancelled, Cause{Job: id, At: o.Now(), Why: "it failed: the operator cancelled it"})
}

// Cancelled returns the jobs that the operator has cancelled. Those that ran have failed.
func (o *Operator) Cancelled() []Cause { return slices.Clone(o.cancelled) }

const (
	// Most is how many archived jobs a queue may have before they are run.
	Most = 4000
	// kept is how many jobs an archive holds at most for nobody to lose one: asynq takes the oldest out of it where it would
	// have 10,000, and forgets them.
	kept = 9000
)

// Many does something with all jobs of a queue. While Redis is away it waits.
func (o *Operator) Many(ctx context.Context) error {
	for _, queue := range o.Queues {
		if q, err := o.Inspector.GetQueueInfo(queue); err == nil && q.Archived >= Most {
			if err := o.runAll(ctx, queue, o.Inspector.ListArchivedTasks, o.Inspector.RunAllArchivedTasks); err != nil {
				return err
			}
		}
	}
	queue := o.Queues[o.Rand.IntN(len(o.Queues))]
	switch o.Rand.IntN(6) {
	case 0:
		return o.archiveAll(ctx, queue, o.Inspector.ArchiveAllPendingTasks)
	case 1:
		return o.archiveAll(ctx, queue, o.Inspector.ArchiveAllRetryTasks)
	case 2:
		return o.archiveAll(ctx, queue, o.Inspector.ArchiveAllScheduledTasks)
	case 3:
		return o.runAll(ctx, queue, o.Inspector.ListScheduledTasks, o.Inspector.RunAllScheduledTasks)
	default:
		return o.runAll(ctx, queue, o.Inspector.ListArchivedTasks, o.Inspector.RunAllArchivedTasks)
	}
}

type list = func(queue string, opts ...asynq.ListOption) ([]*asynq.TaskInfo, error)

// runAll runs all jobs of a list.
func (o *Operator) runAll(ctx context.Context, queue string, list list, run func(string) (int, error)) error {
	tasks, err := o.tasks(ctx, queue, list)
	if err != nil {
		return err
	}
	begin := o.Now()
	_, err = run(queue)
	done, err := o.settled(ctx, err)
	for _, task := range tasks {
		o.note(task.ID, true, done, begin)
	}
	return err
}

// archiveAll archives all jobs of a list, if the archive holds them. What is in the archive then was archived by hand, but for
// what was there before.
func (o *Operator) archiveAll(ctx context.Context, queue string, archive func(string) (int, error)) error {
	if err := o.checkArchive(ctx, queue); err != nil {
		return err
	}
	if q, err := o.Inspector.GetQueueInfo(queue); err != nil || q.Archived+q.Pending+q.Active+q.Scheduled+q.Retry > kept {
		return nil // an error: Redis is away
	}
	begin := o.Now()
	_, err := archive(queue)
	if _, err := o.settled(ctx, err); err != nil {
		return err
	}
	tasks, err := o.tasks(ctx, queue, o.Inspector.ListArchivedTasks)
	for _, task := range tasks {
		if j := o.jobs[task.ID]; j != nil && j.shelved != yes {
			o.note(task.ID, false, yes, begin)
			j.shelved = yes
		}
	}
	return err
}

// tasks returns the tasks of a list. It asks until Redis answers.
func (o *Operator) tasks(ctx context.Context, queue string, list list) (tasks []*asynq.TaskInfo, err error) {
	err = o.until(ctx, func() (err error) {
		if tasks, err = list(queue, asynq.PageSize(3*Most)); errors.Is(err, asynq.ErrQueueNotFound) {
			return nil // nobody has enqueued a job there yet
		}
		return err
	})
	return tasks, err
}

// settled tells from an error whether something was done. If Redis did not answer, it waits until
// Redis has done what it got.
func (o *Operator) settled(ctx context.Context, err error) (answer, error) {
	done := outcome(err)
	if done != perhaps {
		return done, nil
	}
	if err := o.until(ctx, func() error { _, err := o.Inspector.Queues(); return err }); err != nil {
		return done, err
	}
	return done, sleep(ctx, time.Second) // a Redis that was stopped serves its connections in any order
}

// until tries something until it succeeds.
func (o *Operator) until(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		if sleep(ctx, 50*time.Millisecond) != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Settle ends what the operator did to whole queues. All of them go on.
func (o *Operator) Settle(ctx context.Context) error {
	for _, queue := range o.Queues {
		err := o.until(ctx, func() error {
			info, err := o.Inspector.GetQueueInfo(queue)
			if err != nil || !info.Paused {
				return err
			}
			return o.Inspector.UnpauseQueue(queue)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Jobs returns the ids of all jobs.
func (o *Operator) Jobs() []string { return slices.Clone(o.ids) }

// String counts what was done.
func (o *Operator) String() string {
	var scheduled, deleted, shelved, runs int
	for _, j := range o.jobs {
		for _, a := range j.acts {
			if a.runs {
				runs++
			}
		}
		if j.due > 0 {
			scheduled++
		}
		if j.deleted != no {
			deleted++
		}
		if j.shelved != no {
			shelved++
		}
	}
	return fmt.Sprintf("%d jobs, %d of them scheduled; the operator ran %d, deleted %d, and left %d archived", len(o.ids), scheduled, runs, deleted, shelved)
}
