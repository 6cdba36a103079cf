package jobview

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// maxOtherQueues is how many queues are read at most that this process does not serve.
	maxOtherQueues = 100
	// serversWithin is how long it takes at most to ask the servers what they serve.
	serversWithin = time.Second
)

// OtherQueue is a queue that no pool of this process serves.
type OtherQueue struct {
	QueueOverview      // the jobs in line are among those to retry
	Served        bool // a server takes jobs from it, or nobody knows
}

// OtherQueues returns the queues that no pool of this process serves, 100 at most. Those that cannot be read are left out:
// they may be of other programs.
//
// It costs some calls for each queue. If there is one with jobs that no worker serves, it also costs some for each server of asynq,
// and like asynq's own tools it then removes servers that have gone from asynq's list.
func (v *View) OtherQueues(ctx context.Context) ([]OtherQueue, error) {
	known, err := v.inspector.Queues(ctx)
	if err != nil {
		return nil, err
	}
	for _, pool := range v.pools() {
		known = slices.DeleteFunc(known, func(name string) bool { _, ours := pool.Weights[name]; return ours })
	}
	known = known[:min(len(known), maxOtherQueues)]
	read := make([]*QueueOverview, len(known))
	for i, name := range known {
		read[i] = &QueueOverview{Name: name}
	}
	var queues []OtherQueue
	for i, err := range v.readQueues(ctx, read, parkedLines{}) {
		if err == nil {
			queues = append(queues, OtherQueue{QueueOverview: *read[i]})
		}
	}
	v.findServers(ctx, queues)
	return queues, ctx.Err()
}

// findServers notes which queues a server serves. Workers tell in a few calls; servers of plain asynq are asked only if need be.
func (v *View) findServers(ctx context.Context, queues []OtherQueue) {
	workers, _ := v.inspector.Workers(ctx) // without the right to read them, the servers are asked
	open := false
	for i := range queues {
		q := &queues[i]
		q.Served = slices.ContainsFunc(workers, func(w Worker) bool { return w.Serves(q.Name) })
		open = open || !q.Served && q.Pending+q.Retry > 0
	}
	if !open {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, serversWithin)
	defer cancel()
	servers, err := v.inspector.Servers(ctx)
	for i := range queues {
		q := &queues[i]
		q.Served = q.Served || err != nil || servers[q.Name] > 0
	}
}

// Servers returns how many servers of asynq take jobs from each queue; those of workers are among them. It costs some calls
// for each server.
func (i *Inspector) Servers(ctx context.Context) (map[string]int, error) {
	servers, err := i.asynqWithin(ctx).Servers()
	if err != nil {
		return nil, fmt.Errorf("read the servers: %w", err)
	}
	of := map[string]int{}
	for _, s := range servers {
		for queue := range s.Queues {
			if s.Status == "active" {
				of[queue]++
			}
		}
	}
	return of, nil
}
