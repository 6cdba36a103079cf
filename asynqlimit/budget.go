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

// budget finds out for how many permits to call tasks: those that are due soon at the limiters,
// shared among the queues, and no more than this process has capacity for. It returns for how many tasks permits are due.
func (c *caller) budget(ctx context.Context, due []line.Due, visits []*visit, capacity int) (wants int64, err error) {
	c.inTurn(visits)
	var names []string
	var costs []int64 // the lowest cost among the first tasks of its lines
	var tasks []int64
	of := make([]int, len(visits)) // the limiter of each visit
	for n, k := range visits {
		limiter, _, _ := line.Split(k.name)
		i := slices.Index(names, limiter)
		if i < 0 {
			i = len(names)
			names, costs, tasks = append(names, limiter), append(costs, k.cost), append(tasks, 0)
		}
		k.here = c.pendingOf(c.queues[k.queue], k.name) // before the limiters are read: no grant in between is missed
		of[n], costs[i], tasks[i] = i, min(costs[i], k.cost), tasks[i]+k.tasks
	}
	read := time.Now()
	standings, err := c.standings(ctx, names, costs)
	free := int64(capacity) // less the tasks that are on their way and may come here
	unseen := make([]int64, len(names))
	for n, k := range visits {
		k.cost = min(k.cost, standings[of[n]].most)
		free -= k.out / k.cost
		k.client = standings[of[n]].client
		unseen[of[n]] += k.unseen()
	}
	needs := make([]int64, len(names)) // tasks for which each limiter gives permits
	for i, s := range standings {
		needs[i] = max(min(s.tasks(unseen[i]), tasks[i]), 0)
		wants += needs[i]
	}
	most := allot(max(free, 0), needs)
	sharing := make([]line.Sharing, len(names))
	for i, name := range names {
		sharing[i] = line.Sharing{
			Limiter: name, Due: standings[i].due, Kept: standings[i].kept, Client: standings[i].client,
			Capacity: most[i], Short: needs[i] > most[i], Serves: c.queues,
		}
	}
	where := make([]int, len(visits)) // the index of each visit's demand
	for n, k := range visits {
		where[n] = len(sharing[of[n]].Queues)
		d := c.demand(k)
		sharing[of[n]].Queues = append(sharing[of[n]].Queues, d)
		c.promised(names[of[n]], d.Out)
	}
	shares, serr := c.l.lines.Share(ctx, sharing)
	if serr != nil {
		err = errors.Join(err, fmt.Errorf("share what comes due: %w", serr))
	}
	now := time.Now()
	for n, k := range visits {
		i := of[n]
		k.permits, k.capacity, k.short = shares[i][where[n]], most[i], needs[i] > most[i]
		s, given := standings[i], int64(0)
		for _, permits := range shares[i] {
			given += permits
		}
		// All permits that are due are given. This is not known while the limiter does not show the permits of some called
		// tasks yet. Nor is it known of one client's permits: the called tasks may come to other processes, which use their own.
		if k.client == "" && unseen[i] == 0 && given >= needs[i]*s.cost {
			s.wait = max(s.wait, s.later)
		}
		s.wait -= now.Sub(read)
		apart := visitsApart(due[k.queue].All, perLine)
		if s.unknown {
			apart = min(apart, paceLasts)
		}
		k.next = nextVisit(s.wait, apart, needs[i] > 2*most[i] && free > 0 && k.client == "")
		if c.ownVisited(k, s, now) && k.client != "" {
			k.next = apart // others visit it when their own permits are due
		}
		if most[i] > 0 {
			c.turns[probeKey{c.queues[k.queue], k.name}] = now
		}
	}
	return wants, err
}

// turnLasts is how long a process remembers when a line last got capacity.
const turnLasts = 10 * time.Minute

// inTurn sorts lines by when they last got capacity of this process, or when it first saw them.
func (c *caller) inTurn(visits []*visit) {
	now := time.Now()
	turn := func(k *visit) time.Time {
		key := probeKey{c.queues[k.queue], k.name}
		at, known := c.turns[key]
		if !known {
			at = now
			c.turns[key] = at
		}
		return at
	}
	slices.SortStableFunc(visits, func(a, b *visit) int { return turn(a).Compare(turn(b)) })
}

// demand is what a visit could call tasks for, whatever the capacity.
func (c *caller) demand(k *visit) line.Demand {
	queue := c.queues[k.queue]
	return line.Demand{
		Queue: queue, Weight: c.l.weightOf(queue), Left: k.tasks * k.cost, Out: k.unseen(), Cost: k.cost,
	}
}

// refund corrects what queues were charged. It gives back permits for which no task was called,
// because the last tasks parked just now or were gone. It charges what the last called task cost
// beyond the permits that were left.
func (c *caller) refund(ctx context.Context, unused []*visit) error {
	if len(unused) == 0 {
		return nil
	}
	sharing := make([]line.Sharing, len(unused))
	for i, k := range unused {
		d := c.demand(k)
		d.Unused = k.permits
		limiter, _, _ := line.Split(k.name)
		sharing[i] = line.Sharing{Limiter: limiter, Client: k.client, Queues: []line.Demand{d}}
	}
	if _, err := c.l.lines.Share(ctx, sharing); err != nil {
		return fmt.Errorf("give back shares: %w", err)
	}
	return nil
}

// limiterStanding is how a limiter stands.
type limiterStanding struct {
	due    int64         // permits that are due within lead
	kept   int64         // of these: when no others are left, no task begins, because the limiter is smooth
	client string        // whose they are, if the limiter is PerClient: this process's; else empty
	wait   time.Duration // until the next permit
	later  time.Duration // until more than due are free; 0: not known
	cost   int64         // of a task, about: of the queues' next tasks, the cheapest
	most   int64         // permits that it gives at once

	unknown bool // it could not be read
}

// tasks returns for how many tasks permits are due, if called tasks want so many permits that the limiter does not show yet.
func (s limiterStanding) tasks(unseen int64) int64 {
	whole := (s.due - unseen) / s.cost
	return min(whole, (s.due-s.kept-unseen+s.cost-1)/s.cost)
}

// anyNumber stands for the permits of a limiter that neither Redis nor the configuration has.
const anyNumber = 500

// standings returns how limiters stand. Nothing is due at a limiter that the error concerns.
func (c *caller) standings(ctx context.Context, names []string, costs []int64) ([]limiterStanding, error) {
	found, unknown, err := c.inspect(ctx, names)
	out := make([]limiterStanding, len(names))
	for i, name := range names {
		if out[i] = (limiterStanding{wait: longest, cost: costs[i], most: costs[i], unknown: true}); !unknown[name] {
			out[i] = standingOf(found[name], c.l.throttle.ID(), costs[i])
		}
	}
	return out, err
}

// misfit stands for the wait for the permits of a whole task where only some are free: the
// limiter does not say when the rest is. A visit sees permits lead before they are due.
const misfit = lead + lead/2

// standingOf returns what is due at a limiter for tasks of a cost, if this client takes it. A
// task that costs more than the limiter ever gives is called when everything is free, and finds
// out by itself.
func standingOf(u operate.FleetUsage, client string, cost int64) limiterStanding {
	r := u.Rate
	if r.Permits == 0 {
		return limiterStanding{due: anyNumber, cost: cost, most: anyNumber}
	}
	s := limiterStanding{wait: max(u.NextFree, u.Paused), later: u.Later, cost: min(cost, r.Permits), most: r.Permits}
	s.due = max(u.Available, u.Soon)
	if r.Type == throttle.PerClient {
		s.client = client
	}
	if r.Smooth {
		s.spread(r, u.NextFree)
	}
	if s.cost > 1 && s.tasks(0) == 0 && s.wait <= lead {
		s.wait = misfit
	}
	return s
}

// spread corrects how a smooth limit stands: its permits are spread over time, by the costs of the tasks that they are for.
// free is the time until the next permit is free. If one is free now, a task may begin, whatever it costs, and others begin
// after it. If not, the permit before it has just been used, or is reserved, and a task waits for all of its permits.
func (s *limiterStanding) spread(r throttle.Rate, free time.Duration) {
	apart := r.Interval
	if r.Window != throttle.Calendar {
		apart += guardOf(r)
	}
	permit := float64(apart) / float64(r.Permits) // the time between two
	if free > 0 {
		s.wait = max(s.wait, free+time.Duration(permit*float64(s.cost-1)))
	}
	soon := int64(0) // permits that are free within lead
	if free <= lead {
		soon = min(s.due, 1+int64(float64(lead-free)/max(permit, 1)))
	}
	if free > 0 {
		s.due = soon
	}
	s.kept = s.due - soon
}
