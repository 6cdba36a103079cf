package admin

import (
	"context"
	"net/http"
	"strings"
)

// explain replies with what holds the job with the task and queue of the query.
func (a *api) explain(w http.ResponseWriter, r *http.Request) {
	a.ofTask(w, r, func(ctx context.Context, task, queue string) (any, error) {
		e, err := a.source.Inspector().Explain(ctx, task, queue)
		if err != nil {
			return nil, err
		}
		e.LastError = a.hide.Text(e.LastError)
		return map[string]any{"text": strings.Join(e.Text(), "\n"), "explanation": e}, nil
	})
}

// job replies with everything about the job with the task and queue of the query.
func (a *api) job(w http.ResponseWriter, r *http.Request) {
	a.ofTask(w, r, func(ctx context.Context, task, queue string) (any, error) {
		return a.source.Inspector().Detail(ctx, task, queue, a.hide)
	})
}
