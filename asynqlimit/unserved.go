package asynqlimit

import (
	"slices"

	"github.com/hibiken/asynq"
)

// unservedBy returns the task types of the configuration for which the handler has no handler. It
// leaves out patterns of many types, because a mux does not say what it has.
func (p *process) unservedBy(handler asynq.Handler) (types []string) {
	mux, ok := handler.(mux)
	if !ok {
		return nil
	}
	for _, j := range p.rules.plan.All() {
		taskType, whole := j.Type()
		if !whole {
			continue
		}
		if _, pattern := mux.Handler(asynq.NewTask(taskType, nil)); pattern == "" {
			types = append(types, taskType)
		}
	}
	return types
}

// tellUnserved logs those types: the name may be misspelt, and then the jobs that are meant run
// without limits.
func (l *Limits) tellUnserved() {
	for _, taskType := range l.lacks {
		l.logger.Warn("this process has no handler for a job of the configuration: its type may be misspelt", "type", taskType)
	}
}

// asks reports whether there is a handler for a task that is called when the task has its permits, or will ask for
// them, as far as that can be known.
func (l *Limits) asks(task *asynq.Task) bool {
	if l.handlers == nil {
		return true
	}
	_, pattern := l.handlers.Handler(task)
	if slices.Contains(l.opts.HandlersAcquire, pattern) {
		return l.opts.Asks != nil && l.opts.Asks(task)
	}
	return pattern != ""
}
