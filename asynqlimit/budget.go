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
	for _, k := range looks {
		if !slices.Contains(names, k.name) {
			names = append(names, k.name)
		}
	}
	standings, err := c.standings(ctx, names)
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
		needs[n] = min((s.due+s.cost-1)/s.cost, k.tasks)
	}
	most := allot(free, needs)
	where := make([]int, len(looks)) // the demand of each look
	for n, k := range looks {
		i := slices.Index(names, k.name)
		where[n] = len(sharing[i].Queues)
		sharing[i].Queues = append(sharing[i].Queues, line.Demand{
			Queue: c.queues[k.queue], Weight: c.l.weightOf(c.queues[k.queue]), Left: k.tasks * standings[i].cost, Out: k.out, Most: most[n] * standings[i].cost,
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
	due  int64         // permits that come due within lead
	wait time.Duration // until the next
	cost int64         // of a task, about
}

// anyNumber stands for the permits of a limiter that is not there: tasks create it.
const anyNumber = 500

// standings returns how limiters stand. Of those that the error concerns nothing
// comes due.
func (c *caller) standings(ctx context.Context, names []string) ([]limiterStanding, error) {
	usages, err := c.fleet.Inspect(ctx, names...)
	unknown := map[string]bool{}
	if spoilt, ok := errors.AsType[*operate.SpoiltError](err); ok {
		for _, l := range spoilt.Limiters {
			unknown[l.Limiter] = true
		}
	} else if err != nil {
		for _, name := range names {
			unknown[name] = true
		}
	}
	found := make(map[string]operate.FleetUsage, len(names))
	for _, u := range usages {
		found[u.Name] = u
	}
	out := make([]limiterStanding, len(names))
	for i, name := range names {
		if out[i].wait = longest; !unknown[name] {
			out[i] = standingOf(found[name])
		}
		out[i].cost = c.costOf(name)
	}
	if err != nil {
		err = fmt.Errorf("read the limiters: %w", err)
	}
	return out, err
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
