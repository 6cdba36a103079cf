//go:build unix

// Package fault is what is done to a site, and when.
package fault

import (
	"context"
	"math/rand/v2"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/site"
)

// Fault is one kind of trouble.
type Fault struct {
	Name string
	What string // for people
	// Exempt says that the limit may break and jobs may be lost, as is documented. The fault is
	// not part of the mix, and its run is not judged.
	Exempt bool

	// do makes trouble until ctx ends. It has undone the trouble when it returns.
	do func(ctx context.Context, s *site.Site, r *rand.Rand) error
}

// Names of faults that other packages use.
const (
	KillWorker = "kill-worker"
	Clock      = "clock" // needs site.BuildShifted
	Limits     = "limits"
)

// All returns all faults.
func All() []Fault {
	return []Fault{
		{Name: KillWorker, What: "a worker: kill -9", do: killWorker},
		{Name: "stop-worker", What: "a worker: SIGSTOP", do: stopWorker},
		{Name: Clock, What: "a worker whose clock is an hour off", do: shiftClock},
		{Name: "kill-redis", What: "Redis: kill -9, started again with its AOF", do: killRedis},
		{Name: "stop-redis", What: "Redis: SIGSTOP", do: stopRedis},
		{Name: "maxmemory", What: "Redis: maxmemory reached", do: fillRedis},
		{Name: "script-flush", What: "Redis: SCRIPT FLUSH, 10 times a second", do: flushScripts},
		{Name: "client-kill", What: "Redis: CLIENT KILL of all, 4 times a second", do: killClients},
		{Name: "cut", What: "connections to Redis: cut, 4 times a second", do: cut},
		{Name: "delay", What: "connections to Redis: requests take 2 s longer", do: delay},
		{Name: "half-open", What: "connections to Redis: open, but nothing passes", do: hold},
		{Name: "lost-replies", What: "connections to Redis: requests arrive, replies are lost", do: loseReplies},
		{Name: Limits, What: "the limit changed and paused at random", do: changeLimit},
		{Name: "flushall", What: "Redis: FLUSHALL", Exempt: true, do: flushAll},
	}
}

// Mix returns the faults that are judged.
func Mix() []Fault {
	return slices.DeleteFunc(All(), func(f Fault) bool { return f.Exempt })
}

// Do makes the slot's trouble until ctx ends, and returns when it is undone.
func (slot Slot) Do(ctx context.Context, s *site.Site) error {
	var g errgroup.Group
	g.Go(func() error { return slot.Fault.do(ctx, s, rand.New(rand.NewPCG(slot.Seed, 0))) })
	if slot.Changes {
		g.Go(func() error { return changeLimit(ctx, s, rand.New(rand.NewPCG(slot.Seed, 1))) })
	}
	return g.Wait()
}
