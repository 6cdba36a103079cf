package jobview

import (
	"context"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// work lists the jobs of a query page by page. Before it lists the next page, it calls do with
// the jobs of this page, queue by queue. Jobs that come back into the list meanwhile are
// skipped. If it ends early, it returns where to go on: with the unfinished page.
func (i *Inspector) work(ctx context.Context, q JobQuery, do func(queue string, jobs []Job) error) (next string, err error) {
	q.works, q.later = true, q.After != ""
	seen := map[JobID]bool{}
	for {
		if err := context.Cause(ctx); err != nil {
			return q.After, err
		}
		page, err := i.list(ctx, q)
		if err != nil {
			return q.After, err
		}
		for len(page.Jobs) > 0 {
			queue, n := page.Jobs[0].Queue, 0
			var jobs []Job
			for ; n < len(page.Jobs) && page.Jobs[n].Queue == queue; n++ {
				if id := (JobID{queue, page.Jobs[n].ID}); !seen[id] {
					seen[id], jobs = true, append(jobs, page.Jobs[n])
				}
			}
			if err := do(queue, jobs); err != nil {
				return q.After, err
			}
			page.Jobs = page.Jobs[n:]
		}
		if q.After = page.Next; q.After == "" {
			return "", nil
		}
	}
}

// named finds the jobs with these ids in a queue. For each that waits, failed or is archived,
// it returns the same as a list would.
func (i *Inspector) named(ctx context.Context, queue string, ids []string) ([]Job, error) {
	stored, entries, err := i.lines.Find(ctx, queue, ids)
	if err != nil {
		return nil, err
	}
	var jobs []Job
	for n, t := range stored {
		s := stop{Queue: queue, Shelf: line.Shelf(t.State)} // asynq's names of states are those of its keys
		if s.Shelf != line.Pending && s.Shelf != line.Retrying && s.Shelf != line.Archived {
			continue
		}
		if j, ok := jobOf(s, entries[n], t, false); ok {
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

func seenOf(jobs []Job) []line.Seen {
	seen := make([]line.Seen, len(jobs))
	for n, j := range jobs {
		seen[n] = j.seen
	}
	return seen
}
