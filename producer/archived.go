package producer

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// ErrArchived: a job of this ID failed for good, and asynq keeps it in its
// archive, so that the new one would never run. Replace takes its place; the
// Inspector of asynq, or asynqmon, runs the old one again. It comes with the error
// for which AlreadyThere is true.
var ErrArchived = errors.New("a job of this id failed before and is archived")

// archivedError is ErrArchived with the job's id, and what asynq said.
type archivedError struct {
	id  string
	err error
}

func (e *archivedError) Error() string {
	return fmt.Sprintf("job %q failed before and is archived", clip(e.id))
}

// Unwrap makes errors.Is see both.
func (e *archivedError) Unwrap() []error { return []error{ErrArchived, e.err} }

//go:embed archived.lua
var removeArchivedLua string

var removeArchived = redis.NewScript(removeArchivedLua)

// taskKey and archiveKey are asynq's.
func (e entry) taskKey() string    { return "asynq:{" + e.job.queue() + "}:t:" + e.id }
func (e entry) archiveKey() string { return "asynq:{" + e.job.queue() + "}:archived" }

// settleArchived looks which of the jobs that are there already are archived. It
// makes their errors say so, or removes them for those that replace them, whose
// positions it returns: they are to be written again.
func (p *Producer) settleArchived(ctx context.Context, entries []entry, errs []error) (again []int) {
	var there []int
	for i, err := range errs {
		if AlreadyThere(err) && !entries[i].ours {
			there = append(there, i)
		}
	}
	if len(there) == 0 {
		return nil
	}
	states := make([]*redis.StringCmd, len(there))
	_, _ = p.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each reply has its own error
		for n, i := range there {
			states[n] = pipe.HGet(ctx, entries[i].taskKey(), "state")
		}
		return nil
	})
	for n, i := range there {
		state, err := states[n].Result()
		switch {
		case errors.Is(err, redis.Nil): // it is gone since
		case err != nil:
			errs[i] = fmt.Errorf("look whether job %q is archived: %w", clip(entries[i].id), err)
		case state != "archived":
		case !entries[i].job.Replace:
			errs[i] = &archivedError{entries[i].id, errs[i]}
		default:
			if err := removeArchived.Run(ctx, p.rdb, []string{entries[i].taskKey(), entries[i].archiveKey()}, entries[i].id).Err(); err != nil {
				errs[i] = fmt.Errorf("replace job %q: %w", clip(entries[i].id), err)
				continue
			}
			again = append(again, i)
		}
	}
	return again
}
