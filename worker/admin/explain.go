package admin

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
)

// explainTimeout bounds how long an explanation may take, and how long others
// wait for it.
const explainTimeout = 5 * time.Second

// explain replies with what holds the job of the query's task and queue.
func (a *api) explain(w http.ResponseWriter, r *http.Request) {
	task, queue := r.URL.Query().Get("task"), r.URL.Query().Get("queue")
	if task == "" {
		refuse(w, http.StatusBadRequest, "want /api/explain?task=ID, the id of the job")
		return
	}
	// One at a time: it may have to read far into a line.
	ctx, cancel := context.WithTimeout(r.Context(), explainTimeout)
	defer cancel()
	select {
	case a.explaining <- struct{}{}:
		defer func() { <-a.explaining }()
	case <-ctx.Done():
		refuse(w, http.StatusServiceUnavailable, "other jobs are being explained: try again")
		return
	}
	e, err := a.source.Inspector().Explain(ctx, task, queue)
	_, ambiguous := errors.AsType[*jobview.AmbiguousTaskError](err)
	switch {
	case ambiguous:
		refuse(w, http.StatusBadRequest, err.Error())
	case errors.Is(err, asynq.ErrTaskNotFound), errors.Is(err, asynq.ErrQueueNotFound):
		refuse(w, http.StatusNotFound, "there is no such job: asynq keeps those that are done only for their retention")
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, err.Error())
	default:
		answer(w, map[string]any{"text": strings.Join(e.Text(), "\n"), "explanation": e})
	}
}
