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
	State JobState // jobs in another state by now are not deleted
	Queue string   // empty: all
	Type  string   // as in a JobQuery
	Jobs  []JobID  // only these; nil: all that match
	After string   // a Deleted.Next: go on from there
}

// Deleted is the result of a Delete.
type Deleted struct {
	Found   int // jobs that were found before it ended
	Deleted int
	Next    string // if it ended early: where to go on; empty if it had not begun
}

// deleteAtOnce is how many jobs one script call deletes. To delete a pending job, Redis
// searches the whole queue.
const deleteAtOnce = 50

// Delete deletes jobs for good. It skips jobs that a worker runs, and jobs that have changed
// their state since they were listed. If it ends early, by an error or by ctx, it has deleted
// what it reports, and perhaps some of the part that was not finished. Another call with Next
// goes on.
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
