package presence

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Worker is a process that runs jobs, as it described itself.
type Worker struct {
	ID      string // its key in per_client limits
	Version string
	Config  string // config.Config.Fingerprint: the same for workers that treat jobs alike
	Host    string
	PID     int
	Started time.Time // by its own clock
	Seen    time.Time // when it last reported, by Redis's clock
	Pools   []Pool

	// Types are the patterns of the task types for which it has handlers: a type that begins
	// with one has a handler, except that the built-in job is for its own type only. Without
	// TypesKnown only Lacks is known: types of its configuration for which it has no handler.
	Types      []string
	TypesKnown bool
	Lacks      []string
}

// Pool is a server of the process.
type Pool struct {
	Name       string         `json:"name"`
	Slots      int            `json:"slots"`       // handlers that run at a time
	MaxWaiting int            `json:"max_waiting"` // jobs that may wait beside them
	Strict     bool           `json:"strict,omitempty"`
	Queues     map[string]int `json:"queues"` // weights
	Running    int            `json:"running"`
	Waiting    int            `json:"waiting"`
	Takes      bool           `json:"takes"` // false while it starts and drains
}

// Serves reports whether the worker takes jobs of a queue.
func (w *Worker) Serves(queue string) bool {
	return slices.ContainsFunc(w.Pools, func(p Pool) bool { _, ok := p.Queues[queue]; return ok && p.Takes })
}

// Handling is what is known about the handler for a task type.
type Handling int

// The values of Handling.
const (
	Unknown Handling = iota
	Handles
	LacksHandler
)

// builtIn is worker.HTTPTaskType.
const builtIn = "http:request"

// Handles reports whether the worker has a handler for a task type.
func (w *Worker) Handles(taskType string) Handling {
	switch {
	case slices.Contains(w.Lacks, taskType):
		return LacksHandler
	case !w.TypesKnown:
		return Unknown
	case slices.ContainsFunc(w.Types, func(pattern string) bool {
		return pattern == taskType || pattern != builtIn && strings.HasPrefix(taskType, pattern)
	}):
		return Handles
	}
	return LacksHandler
}

const (
	// maxTypes is how many patterns a worker reports at most. A worker with more reports none.
	maxTypes = 1000
	// maxText is the largest field that is read.
	maxText = 64 << 10
	// maxNumber is the largest number that is read.
	maxNumber = 1_000_000
	// unknown is the value for types that the worker does not know itself.
	unknown = "unknown"
)

// fields are the fields of a worker's hash.
func (w *Worker) fields() []any {
	types, known := w.Types, w.TypesKnown && len(w.Types) <= maxTypes
	f := []any{
		"version", w.Version, "config", w.Config, "host", w.Host, "pid", w.PID, "started", w.Started.UnixMilli(),
		"pools", text(w.Pools), "lacks", text(w.Lacks[:min(len(w.Lacks), maxTypes)]), "types",
	}
	if !known {
		return append(f, unknown)
	}
	return append(f, text(types))
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain values: there is no other error
	}
	return string(b)
}

// parse reads what fields wrote. Somebody else may have written it: invalid fields are ignored,
// and numbers are bounded.
func parse(id string, hash map[string]string) (Worker, bool) {
	if len(hash) == 0 {
		return Worker{}, false
	}
	for name, value := range hash {
		if len(value) > maxText {
			delete(hash, name)
		}
	}
	w := Worker{ID: id, Version: hash["version"], Config: hash["config"], Host: hash["host"]}
	w.PID, _ = strconv.Atoi(hash["pid"])
	if ms, err := strconv.ParseInt(hash["started"], 10, 64); err == nil && ms > 0 && ms < 1<<43 {
		w.Started = time.UnixMilli(ms)
	}
	if json.Unmarshal([]byte(hash["pools"]), &w.Pools) != nil {
		w.Pools = nil
	}
	for i := range w.Pools {
		p := &w.Pools[i]
		for _, n := range []*int{&p.Slots, &p.MaxWaiting, &p.Running, &p.Waiting} {
			*n = bounded(*n)
		}
		for queue, weight := range p.Queues {
			p.Queues[queue] = bounded(weight)
		}
	}
	if json.Unmarshal([]byte(hash["lacks"]), &w.Lacks) != nil {
		w.Lacks = nil
	}
	w.TypesKnown = json.Unmarshal([]byte(hash["types"]), &w.Types) == nil
	return w, true
}

func bounded(n int) int { return min(max(n, 0), maxNumber) }
