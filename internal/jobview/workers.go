package jobview

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jobthrottle/jobthrottle/internal/presence"
)

// Worker is a process of the fleet, as it described itself at most some seconds ago.
type Worker = presence.Worker

// Workers returns the processes of the fleet that run jobs, by host and process; at most
// presence.MaxWorkers. It is two round trips. It does not return servers of plain asynq, or
// workers of earlier versions.
func (i *Inspector) Workers(ctx context.Context) ([]Worker, error) { return presence.Read(ctx, i.rdb) }

// Differing is one of several configurations that the workers of a queue have. They may treat
// the same job differently.
type Differing struct {
	Config  string `json:"config"`  // its fingerprint
	Workers int    `json:"workers"` // that have it
	Example string `json:"example"` // one of those
}

// explainWorkers tells what the fleet's workers can do with the task's type.
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
	// A server that is not among the workers may have a handler.
	e.NoHandler = lacking > 0 && lacking == len(serving) && pools >= e.Servers
	e.Lacking, e.Configs = lacking, differing(serving)
	return nil
}

// differing groups workers by configuration, the largest group first. It returns nil if all
// have the same.
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
