package worker

import (
	"maps"
	"slices"
	"sync"

	"github.com/jobthrottle/jobthrottle/internal/plan"
)

// job is a job of the configuration, in this process.
type job struct {
	*plan.Job
	inFlight chan struct{} // nil: no cap
	counts   jobCounts
}

// setJobs makes what this process keeps of the jobs and limits of a configuration.
func (w *Worker) setJobs(plans *plan.Jobs) {
	w.plans = plans
	w.jobs, w.counts = map[*plan.Job]*job{}, map[*plan.Limit]*limitCounts{}
	for _, planned := range plans.All() {
		j := &job{Job: planned}
		if j.MaxInFlight > 0 {
			j.inFlight = make(chan struct{}, j.MaxInFlight)
		}
		w.jobs[planned] = j
	}
	for _, l := range plans.Limits() {
		w.counts[l] = &limitCounts{}
	}
}

// jobFor returns what applies to a task type, or nil.
func (w *Worker) jobFor(taskType string) *job { return w.jobs[w.plans.For(taskType)] }

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
