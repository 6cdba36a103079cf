package asynqlimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// budget finds out how many permits to call tasks for: those that come due at the
// limiters, shared among the queues, for which there are places.
func (c *caller) budget(ctx context.Context, due []line.Due, looks []*look, places int) error {
	var names []string
	var costs []int64 // the least of those that come first
	for _, k := range looks {
		if i := slices.Index(names, k.name); i < 0 {
			names, costs = append(names, k.name), append(costs, k.cost)
		} else {
			costs[i] = min(costs[i], k.cost)
		}
	}
	standings, err := c.standings(ctx, names, costs)
	sharing := make([]line.Sharing, len(names))
	for i, name := range names {
		sharing[i] = line.Sharing{Limiter: name, Due: standings[i].due}
	}
	free := int64(places) // less those who are on their way, and may come here
	for _, k := range looks {
		free -= k.out / standings[slices.Index(names, k.name)].cost
	}
	free = max(free, 0)
	needs := make([]int64, len(looks)) // tasks
	for n, k := range looks {
		s := standings[slices.Index(names, k.name)]
		needs[n] = min(s.due/s.cost, k.tasks)
	}
	most := allot(free, needs)
	where := make([]int, len(looks)) // the demand of each look
	for n, k := range looks {
		i := slices.Index(names, k.name)
		where[n] = len(sharing[i].Queues)
		sharing[i].Queues = append(sharing[i].Queues, line.Demand{
			Queue: c.queues[k.queue], Weight: c.l.weightOf(c.queues[k.queue]), Left: k.tasks * standings[i].cost,
			Out: k.out + c.pendingOf(c.queues[k.queue], k.name), Most: most[n] * standings[i].cost,
		})
	}
	shares, serr := c.l.lines.Share(ctx, sharing)
	if serr != nil {
		err = errors.Join(err, fmt.Errorf("share what comes due: %w", serr))
	}
	for n, k := range looks {
		i := slices.Index(names, k.name)
		s := standings[i]
		k.permits = shares[i][where[n]]
		k.short = needs[n] > most[n]
		k.next = nextLook(s.wait, due[k.queue].All, k.short)
	}
	return err
}

// limiterStanding is how a limiter stands.
type limiterStanding struct {
	due  int64         // permits that come due within lead, for whole tasks
	wait time.Duration // until the next
	cost int64         // of a task, about
}

// anyNumber stands for the permits of a limiter that is not there: tasks create it.
const anyNumber = 500

// standings returns how limiters stand. Of those that the error concerns nothing
// comes due.
func (c *caller) standings(ctx context.Context, names []string, costs []int64) ([]limiterStanding, error) {
	found, unknown, err := c.inspect(ctx, names)
	out := make([]limiterStanding, len(names))
	for i, name := range names {
		if out[i] = (limiterStanding{wait: longest, cost: costs[i]}); !unknown[name] {
			out[i] = standingOf(found[name], costs[i])
		}
	}
	return out, err
}

// misfit is how long to wait for the permits of a whole task, where some are free:
// the limiter does not say when that is. It sees it lead before.
const misfit = lead + lead/2

// standingOf returns what comes due at a limiter for tasks of a cost: at a
// PerClient one, for all processes together, since any of them may take what is
// called. A task that costs more than the limiter ever gives is called when
// everything is free: to find that out is its own.
func standingOf(u operate.FleetUsage, cost int64) limiterStanding {
	r := u.Rate
	if r.Permits == 0 {
		return limiterStanding{due: anyNumber, cost: cost}
	}
	s := limiterStanding{wait: max(u.NextFree, u.Paused), cost: min(cost, r.Permits)}
	add := func(permits int64) { s.due += permits - permits%s.cost }
	switch {
	case r.Type != throttle.PerClient:
		add(max(u.Available, u.Soon))
	case len(u.PerClient) > 0:
		for _, own := range u.PerClient {
			add(max(own.Available, own.Soon))
		}
	case u.Paused <= lead:
		add(r.Permits)
	}
	if s.cost > 1 && s.due == 0 && s.wait <= lead {
		s.wait = misfit
	}
	return s
}
