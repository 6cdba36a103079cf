package asynqlimit

import (
	"context"
	"errors"
	"fmt"
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
	place  chan struct{} // there is one again for a task that waits in a line of max_in_flight

	mu      sync.Mutex
	pending map[probeKey]int64 // permits for which called tasks are here, and have no answer
	known   map[string]*lineup // by queue
	paces   map[string]pace    // of limiters
	wanted  map[string]bool    // limiters whose pace jobs have asked for
	fresh   map[probeKey]bool  // lines to announce
	probes  map[probeKey]*probe
	tries   tries
	onWay   map[probeKey]*expected // tasks called from lines of max_in_flight, that are not here yet
	spare   map[probeKey]bool      // such lines that had nobody to call for all the places when they were last looked at
}

type probeKey struct{ queue, line string }

func newCaller(l *Limits, queues []string) *caller {
	return &caller{
		l: l, fleet: operate.NewFleet(l.rdb), queues: queues, wake: make(chan struct{}, 1), place: make(chan struct{}, 1),
		pending: map[probeKey]int64{}, known: map[string]*lineup{}, paces: map[string]pace{}, wanted: map[string]bool{},
		fresh: map[probeKey]bool{}, probes: map[probeKey]*probe{}, onWay: map[probeKey]*expected{}, spare: map[probeKey]bool{},
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
	placeAfter = 5 * time.Millisecond
	// adoptEvery is how often lines of the version before this one are looked for.
	adoptEvery = 10 * time.Second
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
		case <-c.place:
			if time.Until(at) > placeAfter {
				at = time.Now().Add(placeAfter)
				timer.Reset(placeAfter)
			}
			continue
		case <-timer.C:
		}
		if now := time.Now(); now.Sub(adopted) > adoptEvery {
			adopted = now
			c.adopt(ctx)
		}
		next, err := c.pass(ctx)
		if err != nil && ctx.Err() == nil && c.l.reports.add(time.Now(), "bring") > 0 {
			c.l.logger.Warn("cannot bring waiting jobs back; trying on", "error", err)
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

// look is a line of one queue that this process looks at.
type look struct {
	queue   int // among the queues
	name    string
	out     int64   // permits on their way
	here    int64   // permits of tasks that have come from it, and have no answer yet
	tasks   int64   // in the line
	cost    int64   // of each, about: that of the first
	permits int64   // to call tasks for; after the call, those left of them
	from    float64 // where in the line, from 0 to 1
	inOrder bool
	next    time.Duration
	short   bool // fewer than the limiter gives, for want of places
}

// pass looks at the lines that are due, and returns when to do so again. What
// fails for one queue or limiter does not keep it from the others.
func (c *caller) pass(ctx context.Context) (time.Duration, error) {
	places, began := c.l.gate.places(lead), time.Now()
	due, err := c.l.lines.Due(ctx, c.queues, places)
	if err != nil {
		err = fmt.Errorf("read the lines: %w", err)
	}
	c.learn(due, began)
	err = errors.Join(err, c.announce(ctx))
	looks, next := c.blocked(due, places), empty
	var claimed []*look
	for i, d := range due {
		if d.All > 0 {
			next = min(next, idle)
		}
		if d.All > 0 && places > 0 && !d.Paused {
			next = min(next, max(d.Next, busy))
		}
		if len(d.Known) > int(d.All) { // blocked ones
			next = min(next, idle)
		}
		for _, line := range d.Claimed {
			claimed = append(claimed, &look{queue: i, name: line.Name, out: line.Out, tasks: line.Tasks, cost: max(line.Cost, 1)})
		}
	}
	if len(claimed) > 0 {
		err = errors.Join(err, c.budget(ctx, due, claimed, places))
		next = busy
	}
	err = errors.Join(err, c.survey(ctx))
	return next, errors.Join(err, c.bring(ctx, append(looks, claimed...)))
}

// blocked are the lines of tasks that cannot run as things stand from which some
// are to be tried.
func (c *caller) blocked(due []line.Due, places int) (looks []*look) {
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
			n, rule := p.look(now, &c.tries), c.l.fullRule(key.line)
			if rule != nil {
				n = min(cap(rule.inFlight)-len(rule.inFlight)-int(c.pending[key])-c.toCome(key, now), places)
			}
			if n > 0 {
				k := &look{queue: i, name: key.line, permits: int64(n), inOrder: rule != nil, next: probeFirst}
				if n == 1 && rule == nil { // those at the head may be wrong for good
					k.from = rand.Float64()
				}
				looks = append(looks, k)
			}
		}
	}
	return looks
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
func (c *caller) bring(ctx context.Context, looks []*look) error {
	if len(looks) == 0 {
		return nil
	}
	var queues []string
	var of [][]*look
	for _, k := range looks {
		i := slices.Index(queues, c.queues[k.queue])
		if i < 0 {
			i = len(queues)
			queues, of = append(queues, c.queues[k.queue]), append(of, nil)
		}
		of[i] = append(of[i], k)
	}
	args := make([][]line.Look, len(queues))
	for i := range queues {
		for _, k := range of[i] {
			args[i] = append(args[i], line.Look{Line: k.name, Permits: k.permits, From: k.from, InOrder: k.inOrder, Next: k.next})
		}
	}
	brought, err := c.l.lines.Bring(ctx, queues, args)
	if err != nil {
		err = fmt.Errorf("bring waiting jobs back: %w", err)
	}
	var unused []*look
	for i, queue := range queues {
		called := int64(0)
		for n, b := range brought[i] {
			k := of[i][n]
			called += b.Called
			c.expect(probeKey{queue, k.name}, k.permits, b)
			c.note(queue, k.name, b.Left)
			k.out, k.tasks, k.permits = k.out+b.Cost, b.Left, k.permits-b.Cost
			if k.permits != 0 && !line.IsBlocked(k.name) {
				unused = append(unused, k)
			}
		}
		c.l.gate.expect(queue, int(called))
	}
	return errors.Join(err, c.refund(ctx, unused))
}
