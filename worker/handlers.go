package worker

import (
	"context"
	"slices"
	"sync"

	"github.com/hibiken/asynq"
)

// handlers finds the handler of a task: one of the worker's own, or Options.Handler.
type handlers struct {
	own        *asynq.ServeMux
	http       *asynq.ServeMux // has the built-in job, which is for HTTPTaskType only
	other      asynq.Handler   // nil: none
	middleware []asynq.MiddlewareFunc

	mu    sync.Mutex
	types []string // patterns of own and http, which do not list them
}

// anyType is the pattern that Handler returns for Options.Handler. A handler in own with the
// same pattern may get its permits itself; that must not count for Options.Handler.
const anyType = "*"

// handle registers a handler of the worker's own.
func (h *handlers) handle(pattern string, handler asynq.Handler) {
	mux := h.own
	if pattern == HTTPTaskType {
		mux = h.http
	}
	mux.Handle(pattern, handler)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.types = append(h.types, pattern)
}

// patterns returns a function that lists the patterns of all handlers. It returns nil if these
// are unknown.
func (h *handlers) patterns() func() []string {
	if h.other != nil {
		return nil
	}
	return func() []string {
		h.mu.Lock()
		defer h.mu.Unlock()
		return slices.Clone(h.types)
	}
}

// use wraps the handlers.
func (h *handlers) use(middleware []asynq.MiddlewareFunc) {
	h.own.Use(middleware...)
	h.http.Use(middleware...)
	h.middleware = append(h.middleware, middleware...)
}

// ProcessTask implements asynq.Handler.
func (h *handlers) ProcessTask(ctx context.Context, task *asynq.Task) error {
	handler, _ := h.Handler(task)
	return handler.ProcessTask(ctx, task)
}

// Handler returns the handler of a task and its pattern. The pattern is empty if there is none:
// then the handler returns an error that says so.
func (h *handlers) Handler(task *asynq.Task) (asynq.Handler, string) {
	if mux, ok := h.other.(*asynq.ServeMux); ok {
		if _, pattern := mux.Handler(task); pattern != "" {
			return h.wrapped(), anyType
		}
		return h.registered(task)
	}
	own, pattern := h.registered(task)
	if pattern != "" || h.other == nil {
		return own, pattern
	}
	return h.wrapped(), anyType
}

// registered returns the handler of the worker's own for a task, and its pattern.
func (h *handlers) registered(task *asynq.Task) (asynq.Handler, string) {
	if task.Type() == HTTPTaskType {
		return h.http.Handler(task)
	}
	return h.own.Handler(task)
}

// wrapped is Options.Handler in the worker's middleware.
func (h *handlers) wrapped() asynq.Handler {
	handler := h.other
	for i := len(h.middleware) - 1; i >= 0; i-- {
		handler = h.middleware[i](handler)
	}
	return handler
}
