package asynqlimit

import (
	"context"
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
	for _, k := range looks {
		if !slices.Contains(names, k.name) {
			names = append(names, k.name)
		}
	}
	standings, err := c.standings(ctx, names)
	if err != nil {
		return err
	}
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
		if needs[n] = (s.due + s.cost - 1) / s.cost; due[k.queue].Known[k.name] >= 0 {
			needs[n] = min(needs[n], due[k.queue].Known[k.name])
		}
	}
	most := allot(free, needs)
	where := make([]int, len(looks)) // the demand of each look
	for n, k := range looks {
		i := slices.Index(names, k.name)
		left := due[k.queue].Known[k.name]
		if left < 0 {
			left = unmeasured
		}
		where[n] = len(sharing[i].Queues)
		sharing[i].Queues = append(sharing[i].Queues, line.Demand{
			Queue: c.queues[k.queue], Weight: c.l.weightOf(c.queues[k.queue]), Left: left * standings[i].cost, Out: k.out + c.pendingOf(c.queues[k.queue], k.name), Most: most[n] * standings[i].cost,
		})
	}
	shares, err := c.l.lines.Share(ctx, sharing)
	if err != nil {
		return fmt.Errorf("share what comes due: %w", err)
	}
	for n, k := range looks {
		i := slices.Index(names, k.name)
		s := standings[i]
		k.permits = shares[i][where[n]]
		k.short = needs[n] > most[n]
		k.next = nextLook(s.wait, due[k.queue].All, k.short)
	}
	return nil
}

// limiterStanding is how a limiter stands.
type limiterStanding struct {
	due  int64         // permits that come due within lead
	wait time.Duration // until the next
	cost int64         // of a task, about
}

// unmeasured stands for the length of a line that is not known.
const unmeasured = 10_000

// anyNumber stands for the permits of a limiter that is not there: tasks create it.
const anyNumber = 500

func (c *caller) standings(ctx context.Context, names []string) ([]limiterStanding, error) {
	found := make(map[string]operate.FleetUsage, len(names))
	usages, err := c.fleet.Inspect(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("read the limiters: %w", err)
	}
	for _, u := range usages {
		found[u.Name] = u
	}
	out := make([]limiterStanding, len(names))
	for i, name := range names {
		out[i] = standingOf(found[name])
		out[i].cost = c.costOf(name)
	}
	return out, nil
}

// standingOf returns what comes due at a limiter: at a PerClient one, for all
// processes together, since any of them may take what is called.
func standingOf(u operate.FleetUsage) limiterStanding {
	r := u.Rate
	if r.Permits == 0 {
		return limiterStanding{due: anyNumber}
	}
	if r.Type != throttle.PerClient {
		return limiterStanding{due: max(u.Available, u.Soon), wait: max(u.NextFree, u.Paused)}
	}
	if len(u.PerClient) == 0 {
		s := limiterStanding{wait: u.Paused}
		if u.Paused <= lead {
			s.due = r.Permits
		}
		return s
	}
	s := limiterStanding{wait: -1}
	for _, own := range u.PerClient {
		s.due += max(own.Available, own.Soon)
		if wait := max(own.NextFree, u.Paused); s.wait < 0 || wait < s.wait {
			s.wait = wait
		}
	}
	return s
}
