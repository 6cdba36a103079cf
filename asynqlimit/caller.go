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

// caller brings tasks back from their lines when their permits come due. The
// processes that serve a queue share its lines; each line is looked at by one of
// them at a time, and only by those that have a place for what they call.
type caller struct {
	l      *Limits
	fleet  *operate.Fleet
	queues []string
	wake   chan struct{}
	freed  chan struct{} // there is one again for a task that waits in a line of max_in_flight

	mu      sync.Mutex
	pending map[probeKey]int64 // permits for which called tasks are here, and have no answer
	known   map[string]*lineup // by queue
	paces   map[string]pace    // of limiters
	wanted  map[string]bool    // limiters whose pace jobs have asked for
	fresh   map[probeKey]bool  // lines to announce
	probes  map[probeKey]*probe
	tries   tries
	onWay   map[probeKey]*expected // tasks called from lines of max_in_flight, that are not here yet
	owed    map[owedKey]line.Charged
	average map[string]int64     // permits that a task costs, by line that tenants share: of the goroutine that passes
	mended  time.Time            // when a look last put all lines back: of the goroutine that passes
	free    map[string]int64     // slots of limits in flight, by name, as this pass read them: of the goroutine that passes
	spare   map[probeKey]bool    // such lines that had nobody to call for all the places when they were last looked at
	resting map[string]time.Time // limiters of orders in which nobody could go on, until then: of the goroutine that passes
	first   map[string]bool      // limiters in whose orders somebody can go on: of the goroutine that passes
}

type probeKey struct{ queue, line string }

func newCaller(l *Limits, queues []string) *caller {
	return &caller{
		l: l, fleet: operate.NewFleet(l.rdb), queues: queues, wake: make(chan struct{}, 1), freed: make(chan struct{}, 1),
		pending: map[probeKey]int64{}, known: map[string]*lineup{}, paces: map[string]pace{}, wanted: map[string]bool{},
		fresh: map[probeKey]bool{}, probes: map[probeKey]*probe{}, onWay: map[probeKey]*expected{}, spare: map[probeKey]bool{}, free: map[string]int64{}, resting: map[string]time.Time{}, first: map[string]bool{},
		owed: map[owedKey]line.Charged{}, average: map[string]int64{},
	}
}

const (
	// busy, idle and empty are how long to wait between two passes: while lines are
	// due, while none is, and while there are none.
	busy  = 25 * time.Millisecond
	idle  = 100 * time.Millisecond
	empty = 400 * time.Millisecond
	// placeAfter is how soon a place of max_in_flight goes to the next in line, together
	// with those that come meanwhile.
	callFreedAfter = 5 * time.Millisecond
	// adoptEvery is how often lines of the version before this one are looked for.
	adoptEvery = 10 * time.Second
	// restsFor is how long the line of an order is left alone in which nobody could go on,
	// unless one of it ends here: others are looked at before.
	restsFor = 500 * time.Millisecond
	// sweepEvery is how often attempts are looked for that asynq never began or ended.
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
		}
		if now := time.Now(); now.Sub(swept) > sweepEvery {
			swept = now
			for _, a := range c.l.attempts.sweep(now) {
				a.ask()
				c.answered(a)
			}
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

// fewShared is how many lines that tenants share a look puts back, if workers have removed
// them that know no tenants. If there are more, one look a second does.
const fewShared = 100

// mends is how many of them a look puts back: none where tenants share no limit.
func (c *caller) mends(now time.Time) int {
	switch {
	case !c.l.rules.share:
		return 0
	case now.Sub(c.mended) < sweepEvery:
		return fewShared
	}
	c.mended = now
	return math.MaxInt32
}

// look is a line of one queue that this process looks at.
type visit struct {
	queue    int // among the queues
	name     string
	out      int64   // permits on their way
	here     int64   // permits of tasks that have come from it, and have no answer yet
	tasks    int64   // in the line
	cost     int64   // of each, about: that of the first
	permits  int64   // to call tasks for; after the call, those left of them
	capacity int64   // for them
	client   string  // whose permits they are, of a PerClient limiter
	from     float64 // where in the line, from 0 to 1
	inOrder  bool
	oneByOne bool
	next     time.Duration
	short    bool // fewer than the limiter gives, for want of places
}

// pass looks at the lines that are due, and returns when to do so again. What
// fails for one queue or limiter does not keep it from the others.
func (c *caller) pass(ctx context.Context) (time.Duration, error) {
	capacity, began := c.l.gate.capacity(lead), time.Now()
	due, err := c.l.lines.Due(ctx, c.queues, capacity, c.mends(began))
	if err != nil {
		err = fmt.Errorf("read the lines: %w", err)
	}
	c.learn(due, began)
	err = errors.Join(err, c.announce(ctx), c.flushOrders(ctx), c.freeOf(ctx, due))
	visits, next := c.blocked(due, capacity), empty
	var claimed, strays []*visit
	for i, d := range due {
		if d.All > 0 {
			next = min(next, idle)
		}
		if d.All > 0 && capacity > 0 && !d.Paused {
			next = min(next, max(d.Next, busy))
		}
		if len(d.Known) > int(d.All) { // blocked ones
			next = min(next, idle)
		}
		for _, line := range d.Claimed {
			k := &visit{queue: i, name: line.Name, out: line.Out, tasks: line.Tasks, cost: max(line.Cost, 1)}
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
		err = errors.Join(err, c.budget(ctx, due, claimed, capacity))
		next = busy
	}
	err = errors.Join(err, c.survey(ctx), c.chargeOwed(ctx), c.release(ctx, strays))
	return next, errors.Join(err, c.bring(ctx, append(visits, claimed...)))
}

// blocked are the lines of tasks that cannot run as things stand from which some
// are to be tried.
func (c *caller) blocked(due []line.Due, capacity int) (visits []*visit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for i, d := range due {
		if d.Paused {
			continue
		}
		for name := range d.Known {
			if key := (probeKey{d.Queue, name}); line.IsBlocked(name) && c.probes[key] == nil {
				c.probes[key] = &probe{}
			}
		}
		for key, p := range c.probes {
			if _, known := d.Known[key.line]; key.queue != d.Queue || !known && !p.opens() {
				continue
			}
			n, rule := p.allowance(now, &c.tries), c.l.fullRule(key.line)
			limiter, slots := line.SlotLimit(key.line)
			switch {
			case slots:
				n = min(int(c.free[limiter])-int(c.pending[key])-c.toCome(key, now), capacity)
			case rule != nil:
				n = min(cap(rule.inFlight)-len(rule.inFlight)-int(c.pending[key])-c.toCome(key, now), capacity)
			}
			if n > 0 {
				k := &visit{queue: i, name: key.line, permits: int64(n), inOrder: rule != nil || slots, oneByOne: slots && c.l.rules.ordered(limiter), next: probeFirst}
				if n == 1 && !k.inOrder { // those at the head may be wrong for good
					k.from = rand.Float64()
				}
				visits = append(visits, k)
			}
		}
	}
	return visits
}

// saw notes how a task that was called from such a line has fared.
func (c *caller) saw(queue, name string, passed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.probes[probeKey{queue, name}]; p != nil {
		p.saw(passed, time.Now())
	}
}

// bring calls what the looks say, and notes it.
func (c *caller) bring(ctx context.Context, visits []*visit) error {
	if len(visits) == 0 {
		return nil
	}
	var queues []string
	var of [][]*visit
	for _, k := range visits {
		i := slices.Index(queues, c.queues[k.queue])
		if i < 0 {
			i = len(queues)
			queues, of = append(queues, c.queues[k.queue]), append(of, nil)
		}
		of[i] = append(of[i], k)
	}
	shares := map[*visit]*sharing{}
	for _, k := range visits {
		if limiter, _, shared := line.Split(k.name); shared {
			shares[k] = &sharing{k: k, limiter: limiter}
		}
	}
	derr := c.deal(ctx, slices.Collect(maps.Values(shares)))
	args := make([][]line.Visit, len(queues))
	for i := range queues {
		for _, k := range of[i] {
			if s := shares[k]; s != nil {
				args[i] = append(append(args[i], s.visits...), line.Visit{Line: k.name, Next: k.next})
				continue
			}
			args[i] = append(args[i], line.Visit{Line: k.name, Permits: k.permits, From: k.from, InOrder: k.inOrder, OneByOne: k.oneByOne, Next: k.next})
		}
	}
	brought, err := c.l.lines.Bring(ctx, queues, args)
	if err != nil {
		err = fmt.Errorf("bring waiting jobs back: %w", err)
	}
	err = errors.Join(err, derr)
	began := time.Now()
	var unused []*visit
	var charges []line.Charge
	for i, queue := range queues {
		called, n := int64(0), 0
		for _, k := range of[i] {
			if n >= len(brought[i]) { // it could not be looked at
				break
			}
			b := brought[i][n]
			if s := shares[k]; s != nil {
				own := brought[i][n : n+len(s.visits)]
				n += len(s.visits)
				b = line.Brought{Left: k.tasks}
				for _, of := range own {
					b.Called, b.Cost, b.Left = b.Called+of.Called, b.Cost+of.Cost, b.Left-of.Called
				}
				if brought[i][n].Left == 0 {
					b.Left = 0
				}
				c.costs(k.name, b)
				if len(s.visits) > 0 {
					charges = append(charges, s.charge(own))
				}
			}
			n++
			called += b.Called
			c.expect(probeKey{queue, k.name}, k.permits, b)
			if limiter, _ := line.SlotLimit(k.name); k.oneByOne && b.Called == 0 && b.Left > 0 {
				c.resting[limiter] = began.Add(restsFor)
			}
			c.note(queue, k.name, b.Left)
			k.out, k.tasks, k.permits = k.out+b.Cost, b.Left, k.permits-b.Cost
			if k.permits != 0 && !line.IsBlocked(k.name) {
				unused = append(unused, k)
			}
		}
		c.l.gate.expect(queue, int(called))
	}
	if len(charges) > 0 {
		err = errors.Join(err, c.l.lines.Charge(ctx, charges))
	}
	return errors.Join(err, c.refund(ctx, unused))
}
