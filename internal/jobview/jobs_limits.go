package jobview

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// maxJudged is how many limiters are read for a page of jobs.
const maxJudged = 50

// judge adds to jobs in line whether their limit is paused, and about when their permits are
// due.
func (i *Inspector) judge(ctx context.Context, page *JobPage) error {
	var names []string
	known := map[string]bool{}
	for _, j := range page.Jobs {
		if j.Why == WhyLimit && !known[j.Limit] && len(names) < maxJudged {
			names, known[j.Limit] = append(names, j.Limit), true
		}
	}
	if len(names) == 0 {
		return nil
	}
	found, err := i.fleet.Inspect(ctx, names...)
	if _, spoilt := errors.AsType[*operate.SpoiltError](err); err != nil && !spoilt {
		return err
	}
	lines, err := i.LinesOf(ctx, names...)
	if err != nil {
		return err
	}
	usages, length := map[string]operate.FleetUsage{}, map[string]int64{}
	for _, u := range found {
		usages[u.Name] = u
	}
	for _, l := range lines {
		length[l.Limiter] = l.Parked
	}
	var waiting []int
	for n, j := range page.Jobs {
		if known[j.Limit] && j.Why == WhyLimit {
			waiting = append(waiting, n)
		}
	}
	ranks, err := i.ranks(ctx, page.Jobs, waiting)
	if err != nil {
		return err
	}
	for at, n := range waiting {
		j := &page.Jobs[n]
		u, there := usages[j.Limit]
		if !there { // it has expired or was deleted, and the next job creates it again; or it is broken
			continue
		}
		if u.Paused > 0 {
			j.Why = WhyPaused
		}
		if r := ranks[at]; r.position >= 0 {
			// Jobs of other queues get permits in between.
			ahead := float64(r.position) * float64(max(length[j.Limit], r.length)) / float64(max(r.length, 1))
			j.Next = page.At.Add(waitFor(u, ahead*float64(j.Cost)+float64(j.Cost-1)))
		}
	}
	return nil
}

// rank is a job's position in its queue's part of a line.
type rank struct{ position, length int64 }

func (i *Inspector) ranks(ctx context.Context, jobs []Job, of []int) ([]rank, error) {
	queues, limiters, ids := make([]string, len(of)), make([]string, len(of)), make([]string, len(of))
	for at, n := range of {
		queues[at], limiters[at], ids[at] = jobs[n].Queue, cmp.Or(jobs[n].line, jobs[n].Limit), jobs[n].ID
	}
	positions, lengths, err := i.lines.Ranks(ctx, queues, limiters, ids)
	ranks := make([]rank, len(positions))
	for at := range positions {
		ranks[at] = rank{positions[at], lengths[at]}
	}
	return ranks, err
}

// waitFor is about how long it takes until a limiter has granted that many permits, and grants
// one more.
func waitFor(u operate.FleetUsage, permits float64) time.Duration {
	wait := max(u.NextFree, u.Paused)
	rate := float64(u.Rate.Permits)
	if u.Rate.Type == throttle.PerClient {
		rate *= float64(max(len(u.Clients), 1))
	}
	if permits -= float64(u.Available); permits > 0 {
		wait += time.Duration(permits / rate * float64(u.Rate.Interval))
	}
	return wait
}
