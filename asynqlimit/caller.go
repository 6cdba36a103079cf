package asynqlimit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// caller brings tasks back from their lines when their permits are due. The processes that serve
// a queue share its lines. One process at a time visits a line, and only if it has capacity for
// the tasks that it calls. Lines of PerClient limiters each process visits for its own permits, too.
type caller struct {
	l      *Limits
	fleet  *operate.Fleet
	queues []string
	wake   chan struct{}
	freed  chan struct{} // a task in line for max_in_flight, for a slot, or behind others of its order may go on

	mu       sync.Mutex
	pending  map[probeKey]int64 // permits of called tasks that are here and have no answer yet
	over     map[probeKey]bool  // lines whose called tasks have left permits over
	known    map[string]*lineup // by queue
	paces    map[string]pace    // of limiters
	wanted   map[string]bool    // limiters whose pace jobs have asked for
	fresh    map[probeKey]bool  // lines to announce
	probes   map[probeKey]*probe
	tries    tries
	early    map[probeKey]int       // tasks that have come from lines that are visited now
	onWay    map[probeKey]*expected // tasks that were called from lines for max_in_flight or slots and are not here yet
	owed     map[owedKey]line.Charged
	average  map[string]int64           // permits that a task costs, by line that tenants share (run's goroutine only)
	restored time.Time                  // when a pass last put all lines back (run's goroutine only)
	free     map[string]freeSlots       // of limits in flight, by name, as this pass read them (run's goroutine only)
	vacated  map[string]bool            // limits in flight of which this process gave slots back since the last pass
	waiters  map[probeKey][]*slotWaiter // by the names of the lines in which they would park
	spare    map[probeKey]bool          // lines for max_in_flight or slots whose last visit could not call enough tasks
	calledAt map[string]time.Time       // of limits in flight: when a task was called lately (run's goroutine only)
	resting  map[string]time.Time       // until when limiters of orders are left alone because no task could go on (run's goroutine only)
	first    map[string]bool            // limiters in whose orders a task can go on (run's goroutine only)
	upSince  map[string]time.Time       // by queue, since when Redis has answered each pass (run's goroutine only)
	claims   int                        // how many lines the next pass claims, if it has capacity (run's goroutine only)
	full     int                        // how many queues had so many lines or more in the last pass (run's goroutine only)
	turns    map[probeKey]time.Time     // of lines: when they last got capacity, or were first seen (run's goroutine only)
	own      map[probeKey]time.Time     // of lines of PerClient limiters: when this process visits them next (run's goroutine only)
}

type probeKey struct{ queue, line string }

func newCaller(l *Limits, queues []string) *caller {
	return &caller{
		l: l, fleet: operate.NewFleet(l.rdb), queues: queues, wake: make(chan struct{}, 1), freed: make(chan struct{}, 1),
		pending: map[probeKey]int64{}, over: map[probeKey]bool{}, known: map[string]*lineup{}, paces: map[string]pace{}, wanted: map[string]bool{},
		fresh: map[probeKey]bool{}, probes: map[probeKey]*probe{}, early: map[probeKey]int{}, onWay: map[probeKey]*expected{}, waiters: map[probeKey][]*slotWaiter{}, spare: map[probeKey]bool{}, free: map[string]freeSlots{}, calledAt: map[string]time.Time{}, resting: map[string]time.Time{}, first: map[string]bool{},
		owed: map[owedKey]line.Charged{}, average: map[string]int64{}, upSince: map[string]time.Time{}, turns: map[probeKey]time.Time{},
		own: map[probeKey]time.Time{}, vacated: map[string]bool{},
	}
}

const (
	// busy, idle and empty are the times between two passes: while lines are due, while another
	// process may be visiting them or this one cannot, and while there are no lines.
	busy  = 25 * time.Millisecond
	idle  = 100 * time.Millisecond
	empty = 400 * time.Millisecond
	// busyPerLine is by how much busy is longer for each line, up to twice as long: so one pass visits several of them.
	busyPerLine = 100 * time.Microsecond
	// callFreedAfter is how soon after a task has ended the next in line for max_in_flight, for a
	// slot or in an order is called, together with those that can go on by then.
	callFreedAfter = 5 * time.Millisecond
	// adoptEvery is how often the caller takes over lines of the version before this one.
	adoptEvery = 10 * time.Second
	// restsFor is how long the line of an order is left alone if no task in it could go on: other
	// lines are visited first. If a task of the order ends in this process, the line is visited
	// sooner.
	restsFor = 500 * time.Millisecond
	// sweepEvery is how often the caller sweeps attempts that asynq never began or never ended.
	sweepEvery = time.Second
)

// run calls tasks until ctx ends.
func (c *caller) run(ctx context.Context) {
	at := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	swept := at
	var adopted time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
			if time.Until(at) > idle {
				at = time.Now().Add(idle)
				timer.Reset(idle)
			}
			continue
		case <-c.l.gate.freed:
		case <-c.freed:
			if time.Until(at) > callFreedAfter {
				at = time.Now().Add(callFreedAfter)
				timer.Reset(callFreedAfter)
			}
			continue
		case <-timer.C:
		}
		if now := time.Now(); now.Sub(adopted) > adoptEvery {
			adopted = now
			c.adopt(ctx)
		}
		next, err := c.pass(ctx)
		if ctx.Err() == nil {
			c.l.redisAnswered(err)
			if err == nil {
				c.l.permitsRefused()
			}
		}
		if now := time.Now(); now.Sub(swept) > sweepEvery {
			swept = now
			c.forget(now)
			idle, stranded := c.l.attempts.sweep(now)
			for _, a := range idle {
				a.ask()
				c.answered(a)
			}
			c.endStranded(ctx, stranded, now)
		}
		at = time.Now().Add(next)
		timer.Reset(next)
	}
}

// adopt takes over what the version before this one has parked.
func (c *caller) adopt(ctx context.Context) {
	for _, queue := range c.queues {
		n, err := c.l.lines.Adopt(ctx, queue)
		if err != nil && ctx.Err() == nil {
			c.l.logger.Warn("cannot take over the jobs that the version before this one has parked; trying on", "queue", queue, "error", err)
		}
		if n > 0 {
			c.l.logger.Info("took over jobs that the version before this one has parked", "queue", queue, "jobs", n)
		}
	}
}

// fewShared: workers that do not know tenants remove lines that tenants share. If a queue has at
// most so many of these lines, each pass puts them back. If it has more, one pass a second does
// so.
const fewShared = 100

// restores returns the largest number of such lines that a queue may have for this pass to put them
// back. It returns 0 if tenants share no limit.
func (c *caller) restores(now time.Time) int {
	switch {
	case !c.l.rules.share:
		return 0
	case now.Sub(c.restored) < sweepEvery:
		return fewShared
	}
	c.restored = now
	return math.MaxInt32
}

// pass visits the lines that are due, and returns how long to wait before the next pass. If it
// fails for one queue or limiter, it goes on with the others.
func (c *caller) pass(ctx context.Context) (time.Duration, error) {
	capacity, began := c.l.gate.capacity(lead), time.Now()
	claims := 0
	if capacity > 0 {
		claims = max(capacity, c.claims/max(c.full, 1))
	}
	also := c.ownDue(began, claims)
	if claims > 0 {
		c.visitsAlso(also)
	}
	due, err := c.l.lines.Due(ctx, c.queues, claims, c.restores(began), also)
	if err != nil {
		err = fmt.Errorf("read the lines: %w", err)
	}
	c.learn(due, began)
	c.learnOwn(due, also, began)
	err = errors.Join(err, c.announce(ctx), c.flushOrders(ctx), c.freeOf(ctx, due))
	short := map[string]bool{} // queues with lines of which more tasks could be called
	visits, next := c.blocked(due, capacity, short), empty
	var claimed, strays []*visit
	lines := int64(0)
	for _, d := range due {
		lines += d.All
	}
	apart := passesApart(lines)
	c.full = 0
	for i, d := range due {
		switch {
		case d.All == 0, d.Next > farthest && int(d.All) == d.ToVisit(): // this pass visits all that there are
		case capacity > 0 && !d.Paused && d.Next <= farthest:
			next = min(next, max(d.Next+rand.N(d.Next/8+1), apart)) // not all at once: one comes first, and the others see what it found
		default: // another process visits it, perhaps without capacity for its tasks
			next = min(next, idle)
		}
		if claims > 0 && d.ToVisit() >= claims {
			c.full++
		}
		if unvisited(d, capacity) {
			short[d.Queue] = true
		}
		if len(d.Known) > int(d.All) { // there are blocked lines
			next = min(next, idle)
		}
		for _, line := range d.Claimed {
			if c.l.rules.dryLine(line.Name) {
				continue
			}
			k := &visit{queue: i, name: line.Name, out: line.Out, asking: line.Asking, tasks: line.Tasks, cost: max(line.Cost, 1), also: line.Also}
			if average := c.average[k.name]; average > 0 {
				k.cost = average
			}
			if c.l.rules.strays(k.name) {
				strays = append(strays, k)
				continue
			}
			claimed = append(claimed, k)
		}
	}
	if len(claimed) > 0 {
		wants, berr := c.budget(ctx, due, claimed, capacity)
		err = errors.Join(err, berr)
		c.claims = nextClaims(max(c.claims, capacity), capacity, wants, c.full > 0 && berr == nil)
		for _, k := range claimed {
			switch {
			case k.also:
			case k.short: // it has calls to make as soon as it has capacity
				next = min(next, max(k.next, busy))
			default:
				next = min(next, max(k.next, apart))
			}
		}
	}
	if capacity > 0 {
		next = c.ownNext(due, time.Now(), next)
	}
	visits = append(append(visits, c.dryLines(due, capacity, short)...), claimed...)
	err = errors.Join(err, c.survey(ctx), c.chargeOwed(ctx), c.release(ctx, strays), c.bring(ctx, visits))
	called := int64(0)
	for _, k := range visits {
		called += k.called
		switch {
		case k.opened && k.called > 0:
			next = min(next, busy)
		case k.permits > 0 && k.tasks > 0 && !line.IsBlocked(k.name): // they parked too recently to be called
			next = min(next, soonest)
		}
		if k.short && (k.permits <= 0 || !line.IsBlocked(k.name)) { // it has called all that it could
			short[c.queues[k.queue]] = true
		}
	}
	c.l.gate.linesDue(slices.Sorted(maps.Keys(short)), capacity > 0 && called == 0 && len(short) == 0)
	return next, err
}

// unvisited reports whether lines of a queue that this pass does not visit may have tasks to call: because
// there is no capacity for them, or because they were visited just now, by this process or another, and soon
// are again.
func unvisited(d line.Due, capacity int) bool {
	soon := idle
	if capacity > 0 {
		soon = leftFor
	}
	return d.All > 0 && !d.Paused && d.Next >= 0 && d.Next <= soon
}

// ended notes that a task has given back what others wait for in lines of these names.
func (c *caller) ended(lines ...string) {
	waits := false
	for _, queue := range c.queues {
		if slices.ContainsFunc(lines, func(name string) bool { return c.lined(queue, name) }) {
			c.l.gate.lineDue(queue)
			waits = true
		}
	}
	if waits {
		c.mu.Lock()
		for _, name := range lines {
			if limiter, ok := line.SlotLimit(name); ok {
				c.vacated[limiter] = true
			}
		}
		c.mu.Unlock()
		select {
		case c.freed <- struct{}{}:
		default:
		}
	}
}
