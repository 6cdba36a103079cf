package admin

import (
	"context"
	"net/http"
	"time"
)

const (
	// explainTimeout is how long an explanation may take, and how long others wait for it.
	explainTimeout = 5 * time.Second
	// listTimeout is the same for a page of jobs.
	listTimeout = 5 * time.Second
)

// alone lets only one request at a time read much of Redis. Requests that have waited as long
// as that may take are told to try again.
func (a *api) alone(w http.ResponseWriter, r *http.Request, within time.Duration, do func(context.Context)) {
	ctx, cancel := context.WithTimeout(r.Context(), within)
	defer cancel()
	select {
	case a.reading <- struct{}{}:
		defer func() { <-a.reading }()
		do(ctx)
	case <-ctx.Done():
		refuse(w, http.StatusServiceUnavailable, "others search for jobs at this time: try again")
	}
}

// ofTask reads about the task of a request, alone.
func (a *api) ofTask(w http.ResponseWriter, r *http.Request, read func(ctx context.Context, task, queue string) (any, error)) {
	task, queue := r.URL.Query().Get("task"), r.URL.Query().Get("queue")
	if task == "" {
		refuse(w, http.StatusBadRequest, "want "+r.URL.Path+"?task=ID, the id of the job")
		return
	}
	a.alone(w, r, explainTimeout, func(ctx context.Context) {
		reply, err := read(ctx, task, queue)
		if err != nil {
			refuseJob(w, err)
			return
		}
		answer(w, reply)
	})
}
