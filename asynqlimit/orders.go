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

// orders keep the order of tasks that need the only slot of a key's limit in flight: they
// run in the order in which they were taken from their queue, each until it has ended.
// Redis has the orders. A process tells the limits of what it takes before anything else
// happens with it. A task then waits until it comes first: in the room for as long as its
// hold, then in the line for the slot.
type orders struct {
	mu      sync.Mutex
	told    map[attemptKey]line.Ordered // tasks of this process that come first, until they end
	ended   []endedTask                 // Redis is yet to hear of
	changed chan struct{}               // closed when one of this process has ended
}

type endedTask struct {
	queue string
	line.Ordered
}

func newOrders() *orders {
	return &orders{told: map[attemptKey]line.Ordered{}, changed: make(chan struct{})}
}

// keepsOrder says whether tasks run in order: one at a time, for each value of a key.
func keepsOrder(l *plan.SlotLimit) bool { return l.Key != "" && l.Slots.Limit == 1 }

// keepsOrder says whether the tasks run in order that hold slots of a limit, given by its
// own name or that of a value of its key.
func (rs *rules) keepsOrder(limiter string) bool {
	for l := range rs.slots {
		if keepsOrder(l) && strings.HasPrefix(limiter, l.Name+":") {
			return true
		}
	}
	return false
}

// ordered are the limits in flight whose order the task keeps.
func (n needs) ordered() (limiters []string) {
	for _, s := range n.slots {
		if keepsOrder(s.Limit) {
			limiters = append(limiters, s.Limiter)
		}
	}
	return limiters
}

// begins notes a task that comes first.
func (o *orders) begins(a *attempt, limiters []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told[a.key()] = line.Ordered{ID: a.id, Arrival: a.standing.First, Limiters: limiters}
}

// ends notes that asynq has ended an attempt, and whether the task with it. It reports
// whether others of its order may go on.
func (o *orders) ends(queue, id string, task bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := attemptKey{queue, id}
	t, ok := o.told[key]
	delete(o.told, key)
	if !ok || !task {
		return false
	}
	o.ended = append(o.ended, endedTask{queue, t})
	close(o.changed)
	o.changed = make(chan struct{})
	return true
}

// change is closed when the next task of this process ends.
func (o *orders) change() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed
}

// take returns what Redis is yet to hear of, by queue.
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

// flushOrders tells Redis which tasks have ended. What it cannot tell, Redis finds out when
// the next task of that order comes.
func (c *caller) flushOrders(ctx context.Context) (err error) {
	for queue, tasks := range c.l.orders.take() {
		if failed := c.l.lines.Ended(ctx, queue, tasks); failed != nil {
			err = errors.Join(err, fmt.Errorf("take jobs that have ended out of their order: %w", failed))
		}
	}
	return err
}

// ended notes that asynq has ended an attempt, and whether the task with it: then the next
// in its order is called.
func (l *Limits) ended(queue, id string, task bool) {
	if !l.rules.orders || !l.orders.ends(queue, id, task) {
		return
	}
	select {
	case l.caller.place <- struct{}{}:
	default:
	}
}

// order tells the limits of tasks that were just taken, and returns where each stands. If
// Redis gives no answer, each asks by itself.
func (in *intake) order(ctx context.Context, queue string, tasks []line.Taken) map[string]line.Standing {
	if !in.l.rules.orders || len(tasks) == 0 {
		return nil
	}
	told := make([]line.Ordered, len(tasks))
	for i, t := range tasks {
		told[i] = line.Ordered{ID: t.ID, Arrival: t.Arrival(), Limiters: in.orderedBy(queue, t)}
	}
	standings, err := in.l.lines.Order(ctx, queue, told)
	if err != nil {
		return nil
	}
	by := make(map[string]line.Standing, len(tasks))
	for i, t := range told {
		if len(t.Limiters) > 0 {
			by[t.ID] = standings[i]
		}
	}
	return by
}

// orderedBy are the limits whose order a task keeps that was just taken.
func (in *intake) orderedBy(queue string, t line.Taken) []string {
	text, _ := t.Message.(string)
	m, err := line.ParseMessage(text)
	if err != nil {
		return nil
	}
	needs, err := in.l.rules.of(plan.Task{Type: m.Type, Queue: queue, Payload: m.Payload, Headers: m.Headers})
	if err != nil {
		return nil
	}
	return needs.ordered()
}

const (
	// orderSoon and orderLate are how often a task that waits in the room asks whether it
	// comes first: at first, and later.
	orderSoon, orderLate = 10 * time.Millisecond, 160 * time.Millisecond
)

// awaitOrder waits until the task comes first among those that need the same slots, and
// parks it if that takes longer than its hold. From then on it does until it has ended.
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
	wait := j.needs.rule.Hold
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/4)
	}
	within, leave := context.WithTimeout(running, wait)
	defer leave()
	task := line.Ordered{ID: j.a.id, Arrival: j.a.since, Limiters: limiters}
	for pause := orderSoon; ; pause = min(2*pause, orderLate) {
		changed := j.l.orders.change()
		standing, err := j.l.lines.Order(running, j.a.queue, []line.Ordered{task})
		if err != nil {
			return j.undecided(ctx, err)
		}
		if j.a.standing = standing[0]; j.a.standing.IsNext {
			j.l.orders.begins(j.a, limiters)
			j.l.caller.answered(j.a)
			return nil
		}
		behind := j.a.standing.Behind
		if behind != "" && !j.staysFor(behind) || within.Err() != nil {
			return j.parkInOrder(behind, limiters)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-changed:
		case <-within.Done():
		}
		timer.Stop()
		if running.Err() != nil {
			return j.undecided(ctx, running.Err())
		}
	}
}

// staysFor says whether the task may wait in the room for another of its order: not if
// others are in line for the slot, who come before it.
func (j *job) staysFor(limiter string) bool {
	name := line.InFlight + limiter
	near := j.a.wait.State.Near()
	if !near && j.l.caller.queuesFor(j.a.queue, name) {
		return false
	}
	j.a.waitsFor(j.place(name))
	j.l.caller.answered(j.a)
	return j.a.seat.toRoom([]string{name}, near)
}

func (j *job) parkInOrder(behind string, limiters []string) error {
	if behind == "" {
		behind = limiters[0]
	}
	throttled := j.parkForSlot(behind)
	throttled.Err = fmt.Errorf("a job of %q that came earlier has not ended", behind)
	return throttled
}

// comesAt is where the task stands in the line for a slot whose order it keeps: as in
// that order.
func (j *job) comesAt(limiter string) int64 {
	if j.a.standing.First > 0 && slices.Contains(j.needs.ordered(), limiter) {
		return j.a.standing.First
	}
	return j.a.since
}
