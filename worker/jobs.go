package worker

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/expr"
	"github.com/jobthrottle/jobthrottle/internal/limitname"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// job is what applies to the tasks of a pattern.
type job struct {
	pattern  expr.Pattern
	name     string // as configured
	limits   []*limit
	cost     expr.Cost
	hold     time.Duration
	inFlight chan struct{} // nil: no cap
	pauses   []int         // indexes into limits
	maxPause time.Duration
	counts   jobCounts
}

// limit is a configured limit: one limiter, or one for each value of its key.
type limit struct {
	name   string
	rate   throttle.Rate
	key    *expr.Selector
	counts limitCounts
}

// newJobs returns what a valid configuration says about jobs, the pattern that wins first.
func newJobs(cfg *config.Config) ([]*job, error) {
	limits := make(map[string]*limit, len(cfg.Limits))
	for name, lc := range cfg.Limits {
		l := &limit{name: name}
		var err error
		if l.rate, err = lc.ThrottleRate(); err != nil {
			return nil, err
		}
		if lc.Key != "" {
			sel, err := expr.ParseSelector(lc.Key)
			if err != nil {
				return nil, err
			}
			l.key = &sel
		}
		limits[name] = l
	}
	jobs := make([]*job, 0, len(cfg.Jobs))
	for name, jc := range cfg.Jobs {
		j := &job{name: name, pattern: expr.ParsePattern(name), maxPause: jc.LongestPause()}
		var err error
		if j.cost, err = expr.ParseCost(jc.Permits); err != nil {
			return nil, err
		}
		if j.hold, err = jc.HoldTime(); err != nil {
			return nil, err
		}
		for _, name := range jc.Limits {
			j.limits = append(j.limits, limits[name])
		}
		j.pauses = pausedLimits(j.limits, jc.PauseOn429)
		if jc.MaxInFlight > 0 {
			j.inFlight = make(chan struct{}, jc.MaxInFlight)
		}
		jobs = append(jobs, j)
	}
	slices.SortFunc(jobs, func(a, b *job) int { return a.pattern.Compare(b.pattern) })
	return jobs, nil
}

// pausedLimits returns which limits of a job stop when the API says to try
// later: the narrowest that fit, so that one account does not stop the others.
func pausedLimits(limits []*limit, names []string) []int {
	pick := func(want func(*limit) bool) (found []int) {
		for i, l := range limits {
			if want(l) {
				found = append(found, i)
			}
		}
		return found
	}
	if names != nil {
		return pick(func(l *limit) bool { return slices.Contains(names, l.name) })
	}
	if keyed := pick(func(l *limit) bool { return l.key != nil }); len(keyed) > 0 {
		return keyed
	}
	return pick(func(l *limit) bool { return l.rate.Type == throttle.Overall })
}

// exprTask is a task as the expressions of the configuration read it.
func exprTask(task *asynq.Task, queue string) expr.Task {
	return expr.Task{Type: task.Type(), Queue: queue, Payload: task.Payload(), Headers: task.Headers()}
}

// limiterOf returns the name of the limiter that the task draws on.
func (l *limit) limiterOf(task *asynq.Task, queue string) (string, error) {
	if l.key == nil {
		return l.name, nil
	}
	value, err := l.key.Pick(exprTask(task, queue))
	if err != nil {
		return "", fmt.Errorf("limit %q: %w", l.name, err)
	}
	return limitname.OfValue(l.name, value)
}

func (l *limit) String() string {
	s := l.name + " " + l.rate.String()
	if l.rate.Type == throttle.PerClient {
		s += " per worker"
	}
	if l.key != nil {
		s += " per " + l.key.String()
	}
	return s
}

// recent remembers a bounded number of names.
type recent struct {
	mu    sync.Mutex
	names map[string]bool
}

const maxRecent = 10_000

// add reports whether the name is new. It forgets all names when there are too many.
func (r *recent) add(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names[name] {
		return false
	}
	if r.names == nil || len(r.names) >= maxRecent {
		r.names = make(map[string]bool)
	}
	r.names[name] = true
	return true
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
