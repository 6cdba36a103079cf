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

// handledWithPermits reports whether there is a handler for a type that is called when the job
// has its permits, as far as that can be known.
func (l *Limits) handledWithPermits(taskType string) bool {
	if l.handlers == nil {
		return true
	}
	_, pattern := l.handlers.Handler(asynq.NewTask(taskType, nil))
	return pattern != "" && !slices.Contains(l.opts.HandlersAcquire, pattern)
}
