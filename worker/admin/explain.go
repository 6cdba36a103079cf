package admin

import (
	"errors"
	"net/http"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/worker"
)

// explain replies with what holds the job of the query's task and queue.
func (a *api) explain(w http.ResponseWriter, r *http.Request) {
	task, queue := r.URL.Query().Get("task"), r.URL.Query().Get("queue")
	if task == "" {
		refuse(w, http.StatusBadRequest, "want /api/explain?task=ID, the id of the job")
		return
	}
	e, err := a.worker.Inspector().Explain(r.Context(), task, queue)
	_, ambiguous := errors.AsType[*worker.AmbiguousTaskError](err)
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
