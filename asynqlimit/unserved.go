package asynqlimit

import (
	"slices"
	"strings"
	"sync"

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

// unservedPatterns returns the patterns of many types of the configuration that have no type in common with a pattern of
// the handlers, if these are known.
func (l *Limits) unservedPatterns() (patterns []string) {
	if l.opts.HandlerPatterns == nil {
		return nil
	}
	served := l.opts.HandlerPatterns()
	for _, j := range l.rules.plan.All() {
		begin, whole := j.Type()
		if !whole && !slices.ContainsFunc(served, func(s string) bool { return strings.HasPrefix(s, begin) || strings.HasPrefix(begin, s) }) {
			patterns = append(patterns, j.Name)
		}
	}
	return patterns
}

// tellUnserved logs both: the name may be misspelt, and then the jobs that are meant run without
// limits.
func (l *Limits) tellUnserved() {
	for _, taskType := range slices.Concat(l.lacks, l.unservedPatterns()) {
		if !l.unserved.add(taskType) {
			continue // another server of the process has told it
		}
		l.logger.Warn("this server has no handler for a job of the configuration: if its name is misspelt, the jobs that are meant run without its limits; a name for several types ends in ':' or '*'", "type", taskType, "server", l.name)
	}
}

// firsts are the first names that were added: at most maxCauses, because types come from producers.
type firsts struct {
	mu    sync.Mutex
	names map[string]struct{}
}

// add reports whether the name is one of the first, and was not added before.
func (f *firsts) add(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.names[name]; ok || len(f.names) >= maxCauses {
		return false
	}
	if f.names == nil {
		f.names = map[string]struct{}{}
	}
	f.names[name] = struct{}{}
	return true
}

// tellUnmatched logs once of each type that runs without limits because no pattern of the configuration matches it. Many
// programs have such types on purpose, so it is a warning only if a pattern is similar.
func (p *process) tellUnmatched(taskType string) {
	if len(p.rules.all) == 0 || !p.unmatched.add(taskType) {
		return
	}
	const says = "jobs of this type match no pattern of the configuration, and run without limits"
	if meant := p.rules.plan.Meant(taskType); meant != "" {
		p.logger.Warn(says, "type", taskType, "similar", meant, "fix", "correct the pattern or the type; if the type has no limits, give it {} under jobs")
		return
	}
	p.logger.Info(says, "type", taskType)
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
