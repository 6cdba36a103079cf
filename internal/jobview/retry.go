package jobview

import (
	"context"
	"slices"
)

// RetryQuery says which jobs to bring back.
type RetryQuery struct {
	Failed, Archived bool   // the states to bring back; if both are false, both states, for the jobs of IDs
	Queue            string // empty: all
	Type             string // as in a JobQuery
	IDs              []string
	After            string // a Retried.Next: go on from there
}

// Retried is the result of a Retry.
type Retried struct {
	Found  int      `json:"found"` // jobs that were found before it ended
	Back   int      `json:"back"`  // those of them that are back in their queues
	Missed []string `json:"missed,omitempty"`
	Next   string   `json:"-"` // if it ended early: where to go on; empty if it had not begun
}

// retryAtOnce is how many jobs one script call brings back.
const retryAtOnce = 200

// Retry brings failed and archived jobs back to their queues, behind the jobs that are there.
// From each queue, failed jobs come first, in the order of their next tries, then archived ones
// in the order in which they were archived. They ask their limits as if they had just come.
// asynq keeps its count of their retries: a job that has used up all of them gets one attempt.
// Jobs that fail or are archived meanwhile are skipped.
//
// It processes the list while it reads it. Missed are those of IDs that no queue has as failed
// or archived, whichever states are asked for. If progress is not nil, it is called after each
// part with the numbers so far. A Retry that ends early, by an error or by ctx, has brought
// back what it reports, and perhaps some of the part that was not finished; no job is lost.
// Another call with Next goes on.
func (i *Inspector) Retry(ctx context.Context, q RetryQuery, progress func(Retried)) (result Retried, err error) {
	if !q.Failed && !q.Archived {
		q.Failed, q.Archived = true, true
	}
	if progress == nil {
		progress = func(Retried) {}
	}
	again := func(queue string, jobs []Job) error {
		jobs = slices.DeleteFunc(jobs, func(j Job) bool { return !q.means(j) })
		result.Found += len(jobs)
		for part := range slices.Chunk(jobs, retryAtOnce) {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			done, err := i.lines.Again(ctx, queue, seenOf(part))
			if err != nil {
				return err
			}
			for n, back := range done {
				switch {
				case back:
					result.Back++
				case len(q.IDs) > 0:
					result.Missed = append(result.Missed, part[n].ID)
				}
			}
			progress(result)
		}
		return nil
	}
	if len(q.IDs) > 0 {
		err = i.retryNamed(ctx, q, &result, again)
		return result, err
	}
	list := JobQuery{Queue: q.Queue, Type: q.Type, After: q.After, not: Waiting}
	switch {
	case !q.Archived:
		list.State = Failed
	case !q.Failed:
		list.State = Archived
	}
	result.Next, err = i.work(ctx, list, again)
	return result, err
}

// means reports whether the query asks for a job.
func (q RetryQuery) means(j Job) bool {
	state := j.State == Failed && q.Failed || j.State == Archived && q.Archived
	return state && (q.Type == "" || typeMatches(q.Type, j.Type))
}

// retryNamed brings back the jobs with these ids. It records the ids for which there is no such
// job.
func (i *Inspector) retryNamed(ctx context.Context, q RetryQuery, result *Retried, again func(string, []Job) error) error {
	queues, err := i.Queues(ctx)
	if err != nil {
		return err
	}
	all, found := once(slices.Clone(q.IDs)), map[string]bool{}
	meant := map[string][]Job{}
	for _, queue := range queues {
		if q.Queue != "" && q.Queue != queue {
			continue
		}
		for ids := range slices.Chunk(all, readAtOnce) {
			jobs, err := i.named(ctx, queue, ids)
			if err != nil {
				return err
			}
			for _, j := range jobs {
				if q.means(j) {
					meant[queue], found[j.ID] = append(meant[queue], j), true
				}
			}
		}
	}
	result.Missed = slices.DeleteFunc(all, func(id string) bool { return found[id] })
	for _, queue := range queues {
		if err := again(queue, meant[queue]); err != nil {
			return err
		}
	}
	return nil
}

// once returns the texts without duplicates.
func once(texts []string) []string {
	seen := make(map[string]bool, len(texts))
	return slices.DeleteFunc(texts, func(text string) bool {
		before := seen[text]
		seen[text] = true
		return before
	})
}
