package jobview

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// maxOtherQueues is how many queues are read at most that this process does not serve, and otherQueuesWithin how long that
	// takes at most.
	maxOtherQueues    = 100
	otherQueuesWithin = 3 * time.Second
	// serversWithin is how long it takes at most to ask the servers what they serve.
	serversWithin = time.Second
)

// OtherQueue is a queue that no pool of this process serves.
type OtherQueue struct {
	QueueOverview      // the jobs in line are among those to retry
	Served        bool // a server takes jobs from it, or nobody knows
}

// OtherQueues are queues that no pool of this process serves.
type OtherQueues struct {
	Queues []OtherQueue // by name
	Unread int          // how many more there are
}

// OtherQueues returns the queues that no pool of this process serves. It leaves out those that cannot be read, as they may be of
// other programs, and those beyond the first 100 or beyond what can be read in 3 seconds.
//
// It costs some calls for each queue. If there is one with jobs that no worker serves, it also costs some for each server of asynq,
// and like asynq's own tools it then removes servers that have gone from asynq's list.
func (v *View) OtherQueues(ctx context.Context) (OtherQueues, error) {
	known, err := v.inspector.Queues(ctx)
	if err != nil {
		return OtherQueues{}, err
	}
	for _, pool := range v.pools() {
		known = slices.DeleteFunc(known, func(name string) bool { _, ours := pool.Weights[name]; return ours })
	}
	read := make([]*QueueOverview, min(len(known), maxOtherQueues))
	for i := range read {
		read[i] = &QueueOverview{Name: known[i]}
	}
	within, cancel := context.WithTimeout(ctx, otherQueuesWithin)
	defer cancel()
	var queues []OtherQueue
	for i, err := range v.readQueues(within, read, parkedLines{}) {
		if err == nil {
			queues = append(queues, OtherQueue{QueueOverview: *read[i]})
		}
	}
	v.findServers(ctx, queues)
	return OtherQueues{queues, len(known) - len(queues)}, ctx.Err()
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
	var servers map[string]int // empty if nobody knows: this process is a server itself
	if open {
		ctx, cancel := context.WithTimeout(ctx, serversWithin)
		defer cancel()
		servers, _ = v.inspector.Servers(ctx)
	}
	for i := range queues {
		q := &queues[i]
		q.Served = q.Served || len(servers) == 0 || servers[q.Name] > 0
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
