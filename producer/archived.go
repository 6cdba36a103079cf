package producer

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// ErrArchived says that the new job would never run: a job with its ID, or with the unique lock of
// UniqueFor, failed for good, and asynq keeps it in its archive. The error names that job.
// [Job.Replace] replaces a job with the same ID, unless another job has the unique lock of the new
// one ([asynq.ErrDuplicateTask]). The Inspector of asynq, or asynqmon, runs the old job again.
// ErrArchived is joined with the error for which [AlreadyThere] is true.
var ErrArchived = errors.New("a job of this id or with this unique lock failed before and is archived")

// archivedError is ErrArchived with the new job, the id of the archived one, and asynq's error.
type archivedError struct {
	entry entry
	id    string
	err   error
}

func (e *archivedError) Error() string {
	switch {
	case e.id != e.entry.id:
		return fmt.Sprintf("job %q of the same type and payload failed before, is archived, and has the unique lock; unique_for allows no second", clip(e.id))
	case e.entry.replaces():
		return fmt.Sprintf("job %q stays archived: another job of its type and payload is there, and unique_for allows no second", clip(e.id))
	}
	return fmt.Sprintf("job %q failed before and is archived", clip(e.id))
}

// Unwrap makes errors.Is see both.
func (e *archivedError) Unwrap() []error { return []error{ErrArchived, e.err} }

// taskKey and archiveKey are asynq's.
func (e entry) taskKey(id string) string { return "asynq:{" + e.job.queue() + "}:t:" + id }
func (e entry) archiveKey() string       { return "asynq:{" + e.job.queue() + "}:archived" }

// replaces reports whether the entry replaces an archived job.
func (e entry) replaces() bool { return e.job.Replace && !e.ours }

// tellArchived checks which of the jobs that already exist are archived, and makes their errors
// say so. An archived job refuses one with Replace only if another job has its unique lock. So a
// job with Replace that was refused for its ID found a job that was not archived. A job that was
// refused for its unique lock, and is not there itself, would wait for the job that has the lock.
func (p *Producer) tellArchived(ctx context.Context, entries []entry, errs []error) {
	var there []int
	for i, err := range errs {
		if errors.Is(err, asynq.ErrDuplicateTask) || errors.Is(err, asynq.ErrTaskIDConflict) && !entries[i].replaces() {
			there = append(there, i)
		}
	}
	if len(there) == 0 {
		return
	}
	ids := make([]string, len(there)) // of the job whose state is asked for
	states, holders := make([]*redis.StringCmd, len(there)), make([]*redis.StringCmd, len(there))
	_, _ = p.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each reply has its own error
		for n, i := range there {
			ids[n] = entries[i].id
			states[n] = pipe.HGet(ctx, entries[i].taskKey(ids[n]), "state")
			if errors.Is(errs[i], asynq.ErrDuplicateTask) {
				holders[n] = pipe.Get(ctx, entries[i].lock)
			}
		}
		return nil
	})
	_, _ = p.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for n, i := range there {
			if holders[n] == nil || !errors.Is(states[n].Err(), redis.Nil) {
				continue
			}
			if states[n] = holders[n]; states[n].Err() == nil {
				ids[n] = holders[n].Val()
				states[n] = pipe.HGet(ctx, entries[i].taskKey(ids[n]), "state")
			}
		}
		return nil
	})
	for n, i := range there {
		switch state, err := states[n].Result(); {
		case errors.Is(err, redis.Nil): // it has gone meanwhile
		case err != nil:
			errs[i] = fmt.Errorf("find out whether job %q is archived: %w", clip(ids[n]), err)
		case state == "archived":
			errs[i] = &archivedError{entries[i], ids[n], errs[i]}
		}
	}
}
