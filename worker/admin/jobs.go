package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
)

type jobsReply struct {
	At   time.Time     `json:"at"`
	Jobs []jobview.Job `json:"jobs"`
	Next string        `json:"next,omitempty"`
}

// jobs replies with a page of jobs: those with the query's state, queue and type, the one with
// its id, or those of a limit or one value of its key.
func (a *api) jobs(w http.ResponseWriter, r *http.Request) {
	values := r.URL.Query()
	q, err := queryOf(values)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	a.alone(w, r, listTimeout, func(ctx context.Context) {
		page, err := a.page(ctx, q, values.Get("value"))
		switch {
		case errors.Is(err, jobview.ErrBadCursor):
			refuse(w, http.StatusBadRequest, err.Error())
		case err != nil:
			refuse(w, http.StatusServiceUnavailable, err.Error())
		default:
			answer(w, page)
		}
	})
}

func (a *api) page(ctx context.Context, q jobview.JobQuery, value string) (jobsReply, error) {
	list := a.source.JobsOfLimit
	if value != "" {
		list = func(ctx context.Context, q jobview.JobQuery) (jobview.JobPage, error) {
			return a.source.JobsOfValue(ctx, q, value)
		}
	}
	page, err := list(ctx, q)
	for i := range page.Jobs {
		page.Jobs[i].Error = a.hide.Text(page.Jobs[i].Error)
	}
	return jobsReply{At: page.At, Jobs: append([]jobview.Job{}, page.Jobs...), Next: page.Next}, err
}

func queryOf(values url.Values) (jobview.JobQuery, error) {
	q := jobview.JobQuery{
		State: jobview.JobState(values.Get("state")), Limit: values.Get("limit"), Queue: values.Get("queue"), Type: values.Get("type"), After: values.Get("after"),
	}
	if q.State != "" && !slices.Contains(jobview.JobStates, q.State) {
		return q, fmt.Errorf("unknown state %.40q: want waiting, failed or archived", string(q.State))
	}
	return q, nil
}

// refuseJob says why a job cannot be shown.
func refuseJob(w http.ResponseWriter, err error) {
	_, ambiguous := errors.AsType[*jobview.AmbiguousTaskError](err)
	switch {
	case ambiguous:
		refuse(w, http.StatusBadRequest, err.Error())
	case errors.Is(err, asynq.ErrTaskNotFound), errors.Is(err, asynq.ErrQueueNotFound):
		refuse(w, http.StatusNotFound, "there is no such job: asynq keeps those that are done only for their retention")
	default:
		refuse(w, http.StatusServiceUnavailable, err.Error())
	}
}

const (
	// maxJobsBody is large enough for a page of jobs with long ids.
	maxJobsBody = 256 << 10
	// bulkTakes is how long one request works on many jobs. Then the page sends another
	// request.
	bulkTakes = 6 * time.Second
)

// jobsChange says which jobs to retry or to delete: the named ones, or all jobs of a state,
// with a type and a queue if these are given.
type jobsChange struct {
	Jobs  []jobview.JobID  `json:"jobs"`
	All   bool             `json:"all"`
	State jobview.JobState `json:"state"`
	Queue string           `json:"queue"`
	Type  string           `json:"type"`
	After string           `json:"after"` // with All: the After of the last reply, to go on from there
}

// changed is the result. More says that there are other jobs: send another request, with After.
type changed struct {
	Found int    `json:"found"`
	Done  int    `json:"done"`
	More  bool   `json:"more"`
	After string `json:"after,omitempty"`
}

// changeJobs reads which jobs are meant, changes them, and replies with the result.
func (a *api) changeJobs(w http.ResponseWriter, r *http.Request, what string, do func(context.Context, jobsChange) (changed, error)) {
	var c jobsChange
	err := decode(http.MaxBytesReader(w, r.Body, maxJobsBody), &c)
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, fmt.Sprintf("the body is not as expected: %v", err))
		return
	case !slices.Contains(jobview.JobStates, c.State):
		refuse(w, http.StatusBadRequest, fmt.Sprintf("unknown state %.40q: want waiting, failed or archived", string(c.State)))
		return
	case c.All == (len(c.Jobs) > 0), c.After != "" && !c.All:
		refuse(w, http.StatusBadRequest, `want either "jobs" or "all": true`)
		return
	case what == "retry" && c.State == jobview.Waiting:
		refuse(w, http.StatusBadRequest, "jobs that wait go on by themselves")
		return
	}
	a.alone(w, r, listTimeout, func(context.Context) {
		result, err := a.work(r, what, c, do)
		switch {
		case errors.Is(err, jobview.ErrBadCursor):
			refuse(w, http.StatusBadRequest, err.Error())
		case err != nil:
			refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("%d of the jobs are done, and then: %v", result.Done, err))
		default:
			answer(w, result)
		}
	})
}

// work does what a request asks for, for at most bulkTakes.
func (a *api) work(r *http.Request, what string, c jobsChange, do func(context.Context, jobsChange) (changed, error)) (changed, error) {
	ctx, cancel := context.WithTimeout(r.Context(), bulkTakes)
	defer cancel()
	result, err := do(ctx, c)
	a.sampler.forget()
	if err != nil && ctx.Err() != nil && r.Context().Err() == nil && (result.Done > 0 || result.After != c.After) {
		result.More, err = true, nil
	}
	if result.Done > 0 {
		a.logger.Info("jobs changed by an operator", "change", what, "jobs", result.Done, "all", c.All, "state", string(c.State),
			"queue", c.Queue, "type", c.Type, "from", r.RemoteAddr)
	}
	return result, err
}

// retryJobs brings failed or archived jobs back to their queues.
func (a *api) retryJobs(w http.ResponseWriter, r *http.Request) {
	a.changeJobs(w, r, "retry", func(ctx context.Context, c jobsChange) (all changed, err error) {
		queries := []jobview.RetryQuery{{Queue: c.Queue, Type: c.Type, After: c.After}}
		if !c.All {
			queries = nil
			for queue, ids := range byQueue(c.Jobs) {
				queries = append(queries, jobview.RetryQuery{Queue: queue, IDs: ids})
			}
		}
		for _, q := range queries {
			q.Failed, q.Archived = c.State == jobview.Failed, c.State == jobview.Archived
			result, err := a.source.Inspector().Retry(ctx, q, nil)
			all.Found, all.Done = all.Found+result.Found+len(result.Missed), all.Done+result.Back
			all.After = result.Next
			if err != nil {
				return all, err
			}
		}
		return all, nil
	})
}

// deleteJobs deletes jobs for good.
func (a *api) deleteJobs(w http.ResponseWriter, r *http.Request) {
	a.changeJobs(w, r, "delete", func(ctx context.Context, c jobsChange) (changed, error) {
		result, err := a.source.Inspector().Delete(ctx, jobview.DeleteQuery{State: c.State, Queue: c.Queue, Type: c.Type, Jobs: c.Jobs, After: c.After})
		return changed{Found: result.Found, Done: result.Deleted, After: result.Next}, err
	})
}

func byQueue(jobs []jobview.JobID) map[string][]string {
	ids := map[string][]string{}
	for _, j := range jobs {
		ids[j.Queue] = append(ids[j.Queue], j.ID)
	}
	return ids
}
