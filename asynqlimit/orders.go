package asynqlimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/plan"
)

// orders keep the order of tasks that need the only slot of a key's limit in flight: they run in
// the order in which they were taken from their queue, and each of them until it has ended. The
// orders are in Redis. A process tells Redis the limits of the tasks that it takes before it does
// anything else with them. A task then waits until it comes first: in the room for as long as its
// hold, then in the line for the slot.
type orders struct {
	mu      sync.Mutex
	begun   map[attemptKey]begunTask // tasks that come first, until they end
	ended   []endedTask              // ended tasks that Redis does not know about yet
	waiting map[string]*changed      // by limiter, who waits here
}

type begunTask struct {
	line.Ordered
	at time.Time
}

type endedTask struct {
	queue string
	line.Ordered
}

// changed is closed when a task of a limiter's order has ended here.
type changed struct {
	ch    chan struct{}
	users int
}

func newOrders() *orders {
	return &orders{begun: map[attemptKey]begunTask{}, waiting: map[string]*changed{}}
}

// keepsOrder reports whether tasks of a limit run in order: one at a time, for each value of a
// key.
func keepsOrder(l *plan.SlotLimit) bool { return l.Key != "" && l.Slots.Limit == 1 && !l.Dry }

// ordered reports whether the tasks that hold slots of a limiter run in order.
func (rs *rules) ordered(limiter string) bool {
	for l := range rs.slots {
		if keepsOrder(l) && strings.HasPrefix(limiter, l.Name+":") {
			return true
		}
	}
	return false
}

// ordered returns the limits in flight whose order the task keeps.
func (n needs) ordered() (limiters []string) {
	for _, s := range n.slots {
		if keepsOrder(s.Limit) {
			limiters = append(limiters, s.Limiter)
		}
	}
	return limiters
}

const (
	// maxBegun is how many tasks that run in order a process remembers. Beyond that it forgets
	// those that have not ended here for begunLasts: Redis then finds out without the process.
	maxBegun, begunLasts = 4096, time.Hour
)

// begins notes a task that comes first.
func (o *orders) begins(a *attempt, limiters []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if len(o.begun) >= maxBegun {
		for key, t := range o.begun {
			if now.Sub(t.at) > begunLasts {
				delete(o.begun, key)
			}
		}
	}
	o.begun[a.key()] = begunTask{line.Ordered{ID: a.id, First: a.first, Limiters: limiters}, now}
}

// ends notes that asynq has ended an attempt, and whether the task has ended with it. It reports
// whether others in its order may go on.
func (o *orders) ends(queue, id string, task bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := attemptKey{queue, id}
	t, ok := o.begun[key]
	delete(o.begun, key)
	if !ok || !task {
		return false
	}
	o.ended = append(o.ended, endedTask{queue, t.Ordered})
	for _, name := range t.Limiters {
		if c := o.waiting[name]; c != nil {
			close(c.ch)
			c.ch = make(chan struct{})
		}
	}
	return true
}

// enter makes a task wait for those before it in the order of a limiter. It must call leave.
func (o *orders) enter(limiter string) *changed {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting[limiter] == nil {
		o.waiting[limiter] = &changed{ch: make(chan struct{})}
	}
	o.waiting[limiter].users++
	return o.waiting[limiter]
}

func (o *orders) leave(limiter string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting[limiter].users--; o.waiting[limiter].users == 0 {
		delete(o.waiting, limiter)
	}
}

// next is closed when the next task of that order ends here.
func (o *orders) next(c *changed) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return c.ch
}

// take returns the ended tasks that Redis does not know about yet, by queue.
func (o *orders) take() map[string][]line.Ordered {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.ended) == 0 {
		return nil
	}
	by := map[string][]line.Ordered{}
	for _, t := range o.ended {
		by[t.queue] = append(by[t.queue], t.Ordered)
	}
	o.ended = nil
	return by
}

// flushOrders tells Redis which tasks have ended, and makes sure that the lines of those behind
// them are visited. If it cannot tell Redis, Redis finds out when the next task of that order
// comes.
func (c *caller) flushOrders(ctx context.Context) (err error) {
	for queue, tasks := range c.l.orders.take() {
		for _, t := range tasks {
			for _, name := range t.Limiters {
				delete(c.resting, name)
				c.first[name] = true
			}
		}
		if failed := c.l.lines.Ended(ctx, queue, tasks); failed != nil {
			err = errors.Join(err, fmt.Errorf("take jobs that have ended out of their order: %w", failed))
		}
	}
	return err
}

// ended notes that asynq has ended an attempt, and whether the task has ended with it: then the
// next in its order is called.
func (l *Limits) ended(queue, id string, task bool) {
	if !l.rules.orders || !l.orders.ends(queue, id, task) {
		return
	}
	select {
	case l.caller.freed <- struct{}{}:
	default:
	}
}

// order tells Redis the limits of tasks that were just taken, and returns where each of them
// stands, by id. If Redis gives no answer, that is not known, and each task asks again itself.
func (l *Limits) order(ctx context.Context, queue string, tasks []line.Taken) map[string]line.Standing {
	if !l.rules.orders || len(tasks) == 0 {
		return nil
	}
	told := make([]line.Ordered, len(tasks))
	for i, t := range tasks {
		told[i] = line.Ordered{ID: t.ID, First: t.First, Limiters: l.orderedBy(queue, t)}
	}
	standings, err := l.lines.Order(ctx, queue, told)
	if err != nil {
		return nil
	}
	by := make(map[string]line.Standing, len(tasks))
	for i, t := range told {
		by[t.ID] = standings[i]
	}
	return by
}

// orderedBy returns the limits whose order the taken task keeps.
func (l *Limits) orderedBy(queue string, t line.Taken) []string {
	text, _ := t.Message.(string)
	m, err := line.ParseMessage(text)
	if err != nil {
		return nil
	}
	needs, err := l.rules.of(plan.Task{Type: m.Type, Queue: queue, Payload: m.Payload, Headers: m.Headers})
	if err != nil {
		return nil
	}
	return needs.ordered()
}

const (
	// orderSoon and orderLate are how often a task that waits in the room asks whether it comes
	// first: at first, and later.
	orderSoon, orderLate = 10 * time.Millisecond, 160 * time.Millisecond
	// tellAfter is how long a task waits until another process tells Redis the limits of a task
	// that was taken before it. Then it tells them itself, because that process may be gone.
	tellAfter = 100 * time.Millisecond
	// maxTold is for how many tasks it does so at a time.
	maxTold = 100
)

// awaitOrder waits until the task comes first among those that need the same slots, and parks it
// if that takes longer than its hold. Once the task comes first, it stays first until it has
// ended.
func (j *job) awaitOrder(ctx context.Context) error {
	limiters := j.needs.ordered()
	if len(limiters) == 0 {
		return nil
	}
	if j.a.standing.IsNext {
		j.l.orders.begins(j.a, limiters)
		return nil
	}
	defer j.clock()()
	running, cancel := j.l.whileRunning(ctx)
	defer cancel()
	j.a.ask() // those behind it have no reason to wait for it
	wait := min(j.needs.rule.Hold, j.mayWait(ctx))
	began := time.Now()
	task := line.Ordered{ID: j.a.id, First: j.a.first, Limiters: limiters}
	for pause := orderSoon; ; pause = min(2*pause, orderLate) {
		if !j.a.standing.Told || pause > orderSoon {
			standing, err := j.l.lines.Order(running, j.a.queue, []line.Ordered{task})
			if err != nil {
				return j.undecided(ctx, err)
			}
			j.a.standing = standing[0]
		}
		if j.a.standing.IsNext {
			j.l.orders.begins(j.a, limiters)
			j.l.caller.answered(j.a)
			return nil
		}
		waited, behind, most := time.Since(began), j.a.standing.Behind, wait
		if behind == "" { // it will soon be known whether it comes first
			if behind, most = limiters[0], max(wait, lead+slack); waited > tellAfter {
				j.tellForOthers(running)
			}
		}
		if waited >= most || !j.staysFor(behind, most > wait) {
			return j.parkInOrder(behind)
		}
		if err := j.awaitChange(running, behind, min(pause, most-waited)); err != nil {
			return j.undecided(ctx, err)
		}
	}
}

// awaitChange waits until a task of the same order has ended here, but no longer than pause.
func (j *job) awaitChange(ctx context.Context, limiter string, pause time.Duration) error {
	next := j.l.orders.next(j.l.orders.enter(limiter))
	defer j.l.orders.leave(limiter)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-next:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// tellForOthers tells Redis the limits of tasks whose processes have not done so.
func (j *job) tellForOthers(ctx context.Context) {
	untold, err := j.l.lines.Untold(ctx, j.a.queue, maxTold)
	if err == nil {
		j.l.order(ctx, j.a.queue, untold)
	}
}

// staysFor reports whether the task may wait in this process for an earlier task of its order. A task
// that was not called may not if other tasks are in line for the slot, because those come before it.
// With inAnyCase the task may always wait. It then waits in the room, but stays where it is if it would
// stand behind such a line, or if there is no room.
func (j *job) staysFor(limiter string, inAnyCase bool) bool {
	name := line.InFlight + limiter
	near := j.a.wait.State.Near()
	if !near && j.l.caller.queuesFor(j.a.queue, name) {
		return inAnyCase
	}
	j.a.waitsFor(j.parkingIn(name))
	j.l.caller.answered(j.a)
	if inAnyCase {
		j.a.position.stay([]string{name}, near, false)
		return true
	}
	return j.a.position.toRoom([]string{name}, near, false)
}

func (j *job) parkInOrder(behind string) error {
	throttled := j.parkForSlot(behind)
	throttled.Err = fmt.Errorf("a job of %q that came earlier has not ended", behind)
	return throttled
}

// comesAt is where the task stands in the line for a slot: if it keeps an order, where it stands
// in that.
func (j *job) comesAt(limiter string) int64 {
	if j.a.first > 0 && slices.Contains(j.needs.ordered(), limiter) {
		return j.a.first
	}
	return j.a.since
}
