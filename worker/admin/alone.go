package admin

import (
	"context"
	"net/http"
	"time"
)

const (
	// explainTimeout bounds how long an explanation may take, and how long others wait for
	// it.
	explainTimeout = 5 * time.Second
	// listTimeout does that for a page of jobs.
	listTimeout = 5 * time.Second
)

// alone lets one request at a time do what reads much of Redis. It tells others, who have
// waited for as long as it may take, to come again.
func (a *api) alone(w http.ResponseWriter, r *http.Request, within time.Duration, do func(context.Context)) {
	ctx, cancel := context.WithTimeout(r.Context(), within)
	defer cancel()
	select {
	case a.reading <- struct{}{}:
		defer func() { <-a.reading }()
		do(ctx)
	case <-ctx.Done():
		refuse(w, http.StatusServiceUnavailable, "others look for jobs just now: try again")
	}
}

// ofTask has what a request asks about its task done alone.
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
