package jobview

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jobthrottle/jobthrottle/internal/presence"
)

// Worker is a process of the fleet, as it said of itself some seconds ago at most.
type Worker = presence.Worker

// Workers returns the processes of the fleet that run jobs, by host and process;
// presence.MaxWorkers at most. It is two round trips. Servers of plain asynq are not
// among them, nor are workers of versions before this one.
func (i *Inspector) Workers(ctx context.Context) ([]Worker, error) { return presence.Read(ctx, i.rdb) }

// Differing says that workers of a queue have several configurations. They may make
// different things of the same job.
type Differing struct {
	Config  string `json:"config"`  // its fingerprint
	Workers int    `json:"workers"` // that have it
	Example string `json:"example"` // one of those
}

// explainWorkers tells what the fleet's workers make of the task's type.
func (i *Inspector) explainWorkers(ctx context.Context, e *Explanation) error {
	all, err := i.Workers(ctx)
	if err != nil {
		return err
	}
	var serving []Worker
	pools, lacking := 0, 0
	for _, w := range all {
		if !w.Serves(e.Queue) {
			continue
		}
		serving = append(serving, w)
		for _, p := range w.Pools {
			if _, ok := p.Queues[e.Queue]; ok {
				pools++
			}
		}
		if w.Handles(e.Type) == presence.LacksHandler {
			lacking++
		}
	}
	// A server that is not among them may have a handler.
	e.NoHandler = lacking > 0 && lacking == len(serving) && pools >= e.Servers
	e.Lacking, e.Configs = lacking, differing(serving)
	return nil
}

// differing groups workers by configuration, the largest group first. It is nil if
// they have one.
func differing(workers []Worker) []Differing {
	groups := map[string]*Differing{}
	for _, w := range workers {
		g := groups[w.Config]
		if g == nil {
			g = &Differing{Config: w.Config, Example: fmt.Sprintf("%s, process %d", w.Host, w.PID)}
			groups[w.Config] = g
		}
		g.Workers++
	}
	if len(groups) < 2 {
		return nil
	}
	var all []Differing
	for _, config := range slices.Sorted(maps.Keys(groups)) {
		all = append(all, *groups[config])
	}
	slices.SortStableFunc(all, func(a, b Differing) int { return cmp.Compare(b.Workers, a.Workers) })
	return all
}
