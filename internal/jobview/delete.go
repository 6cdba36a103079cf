package jobview

import (
	"context"
	"slices"
)

// JobID names a job.
type JobID struct {
	Queue string `json:"queue"`
	ID    string `json:"id"`
}

// DeleteQuery says which jobs to delete.
type DeleteQuery struct {
	State JobState // which is meant: a job that is in another by now stays
	Queue string   // empty: all
	Type  string   // as in a JobQuery
	Jobs  []JobID  // only these; nil: all that match
	After string   // a Deleted.Next: go on from there
}

// Deleted is what came of a Delete.
type Deleted struct {
	Found   int // jobs that were meant, as far as it came
	Deleted int
	Next    string // of one that ended early: where to go on; empty if it had not begun
}

// deleteAtOnce is how many jobs one script call deletes: for one that is pending,
// Redis looks through the whole queue.
const deleteAtOnce = 50

// Delete deletes jobs for good. Those that a worker has are left alone, and so are
// those that have changed their state since they were listed. One that ends early, by
// an error or by ctx, has deleted what it says, and perhaps the part that was under
// way. Another one with Next goes on.
func (i *Inspector) Delete(ctx context.Context, q DeleteQuery) (result Deleted, err error) {
	remove := func(queue string, jobs []Job) error {
		result.Found += len(jobs)
		jobs = slices.DeleteFunc(jobs, func(j Job) bool { return j.State != q.State || j.seen.State == "" })
		for part := range slices.Chunk(jobs, deleteAtOnce) {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			done, err := i.lines.Delete(ctx, queue, seenOf(part))
			if err != nil {
				return err
			}
			for _, deleted := range done {
				if deleted {
					result.Deleted++
				}
			}
		}
		return nil
	}
	if q.Jobs == nil {
		result.Next, err = i.work(ctx, JobQuery{State: q.State, Queue: q.Queue, Type: q.Type, After: q.After}, remove)
		return result, err
	}
	byQueue := map[string][]string{}
	for _, j := range q.Jobs {
		byQueue[j.Queue] = append(byQueue[j.Queue], j.ID)
	}
	for queue, ids := range byQueue {
		for part := range slices.Chunk(once(ids), readAtOnce) {
			jobs, err := i.named(ctx, queue, part)
			if err != nil {
				return result, err
			}
			if err := remove(queue, jobs); err != nil {
				return result, err
			}
		}
	}
	return result, nil
}
