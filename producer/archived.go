package producer

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// ErrArchived says that a job with this ID failed for good, and asynq keeps it in its archive, so
// that the new one would never run. [Job.Replace] replaces it, unless another job has the unique
// lock of the new one ([asynq.ErrDuplicateTask]). The Inspector of asynq, or asynqmon, runs the
// old job again. ErrArchived is joined with the error for which [AlreadyThere] is true.
var ErrArchived = errors.New("a job of this id failed before and is archived")

// archivedError is ErrArchived with the job, and asynq's error.
type archivedError struct {
	entry entry
	err   error
}

func (e *archivedError) Error() string {
	if e.entry.replaces() {
		return fmt.Sprintf("job %q stays archived: another job of its type and payload is there, and unique_for allows no second", clip(e.entry.id))
	}
	return fmt.Sprintf("job %q failed before and is archived", clip(e.entry.id))
}

// Unwrap makes errors.Is see both.
func (e *archivedError) Unwrap() []error { return []error{ErrArchived, e.err} }

// taskKey and archiveKey are asynq's.
func (e entry) taskKey() string    { return "asynq:{" + e.job.queue() + "}:t:" + e.id }
func (e entry) archiveKey() string { return "asynq:{" + e.job.queue() + "}:archived" }

// replaces reports whether the entry replaces an archived job.
func (e entry) replaces() bool { return e.job.Replace && !e.ours }

// tellArchived checks which of the jobs that already exist are archived, and makes their errors
// say so. An archived job refuses one with Replace only if another job has its unique lock. So a
// job with Replace that was refused for its ID found a job that was not archived.
func (p *Producer) tellArchived(ctx context.Context, entries []entry, errs []error) {
	var there []int
	for i, err := range errs {
		if e := entries[i]; AlreadyThere(err) && !e.ours && (!e.replaces() || errors.Is(err, asynq.ErrDuplicateTask)) {
			there = append(there, i)
		}
	}
	if len(there) == 0 {
		return
	}
	states := make([]*redis.StringCmd, len(there))
	_, _ = p.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each reply has its own error
		for n, i := range there {
			states[n] = pipe.HGet(ctx, entries[i].taskKey(), "state")
		}
		return nil
	})
	for n, i := range there {
		switch state, err := states[n].Result(); {
		case errors.Is(err, redis.Nil): // it has gone meanwhile, or only the lock is there
		case err != nil:
			errs[i] = fmt.Errorf("find out whether job %q is archived: %w", clip(entries[i].id), err)
		case state == "archived":
			errs[i] = &archivedError{entries[i], errs[i]}
		}
	}
}
