package asynqlimit

import (
	"context"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/plan"
)

const (
	// sortMost is how many pending tasks at most one call looks at while those that come have to
	// park.
	sortMost = 200
	// sortLasts is how long it may take to park them: Redis has to answer others, too, and called
	// tasks wait in the queue behind them. After that the server polls its other queues.
	sortLasts = 20 * time.Millisecond
	// sortRests is for how long a process leaves a queue to the process that sorts it, if the next
	// task has to park. sortSees is how many tasks a process reads to find out.
	sortRests = 20 * time.Millisecond
	sortSees  = 8
	// sortEnds is for tasks so large that one call returns few. After so many tasks of which few park, a
	// process takes tasks as they come.
	sortEnds = 8 * sortMost
)

// sortNext returns how many pending tasks to read before the next take. The call before it asked for at most
// last tasks. came is how many tasks the call read, called how many of them had been called, parked how many of
// the others parked, and lasted how long the call took. cut says that the call left tasks out because the tasks
// are large. few is how many tasks earlier calls have read since more of them parked.
//
// sortNext returns 0, so that tasks are taken as they come, if fewer than half of the tasks that had not been
// called park. To find this out, it needs many tasks, or all that there are: the first tasks of a tenant with a
// long backlog may be those that the limit lets through. After a call that lasted longer than sortLasts it
// returns half as many, and in the end none. Otherwise it returns more, because other processes leave the queue
// to this one.
func sortNext(last, came, called, parked int, cut bool, few int, lasted time.Duration) int {
	many := !cut && (came < last || last >= sortMost) || few+came >= sortEnds
	switch {
	case fewPark(came, called, parked) && many:
		return 0
	case lasted > sortLasts:
		return last / 2
	}
	return min(4*last, sortMost)
}

// fewPark reports whether fewer than half of the tasks park that had not been called.
func fewPark(came, called, parked int) bool { return parked == 0 || 2*parked < came-called }

// sortPending parks those of the next tasks of a queue that have to queue behind others in line
// for one of their limiters. Nobody takes them: it costs little to park many tasks together, and a
// tenant that comes now is in its line at once, however many tasks of others were enqueued before.
// It goes on while all that it sees have to, for sortLasts at most.
//
// It returns how many tasks to take at least, because they were called, and at most: none if the
// queue is empty or if all that it has seen have parked. One process at a time sorts a queue. While
// another one does, those at the head that do not park are there to take.
func (in *intake) sortPending(ctx context.Context, queue string, began time.Time) (least, most int) {
	for at, goesOn := began, true; goesOn; at = time.Now() {
		least, most, goesOn = in.sortNow(ctx, queue, at)
		goesOn = goesOn && in.sorts[queue] > 0 && time.Since(began) < sortLasts
	}
	return least, most
}

// endSort takes the tasks of a queue as they come.
func (in *intake) endSort(queue string) {
	in.sorts[queue] = 0
	delete(in.few, queue)
}

// sortNow is one step of sortPending. goesOn says that all that it has seen have parked.
func (in *intake) sortNow(ctx context.Context, queue string, began time.Time) (least, most int, goesOn bool) {
	last := in.sorts[queue]
	seen, sorts, cut, err := in.l.lines.Peek(ctx, queue, in.l.throttle.ID(), last, sortSees, sortLasts)
	if err != nil {
		in.l.logger.Debug("cannot look at pending jobs", "queue", queue, "error", err)
		in.endSort(queue)
		return 0, takenMost, false // asynq hears the error of the take
	}
	whole := in.l.caller.knowsLines(queue)
	if !sorts && len(seen) > 0 {
		most = slices.IndexFunc(seen, func(t line.Taken) bool {
			p, ok := in.parks(in.candidate(ctx, queue, t, whole, began), nil, began)
			return ok && !p.inOrder
		})
		switch most {
		case -1:
			in.endSort(queue)
			return len(slices.DeleteFunc(seen, func(t line.Taken) bool { return !t.Wait.State.Near() })), takenMost, false
		case 0:
			in.l.gate.arrived(queue, "", began)
			in.l.gate.leave(queue, sortRests)
		}
		return most, most, false
	}
	var parks []sorted
	called := 0
	candidates := make([]candidate, 0, len(seen))
	wanted := map[string]int64{} // permits that those of them need that stand behind no line, by limiter
	for _, t := range seen {
		if t.Wait.State.Near() {
			called++
			continue
		}
		k := in.candidate(ctx, queue, t, whole, began)
		for i, name := range k.needs.limiters {
			if k.ahead == "" {
				wanted[name] += k.needs.costs[i]
			}
		}
		candidates = append(candidates, k)
	}
	before := map[string]bool{} // limiters of tasks that have to be taken first: those behind them do not overtake them
	for _, k := range candidates {
		p, ok := in.parks(k, wanted, began)
		if ok && !p.inOrder && !before[p.why.Limiter] {
			if !k.task.Waited() { // it arrives when it parks: another process may park what stands before it, and later than now
				p.task.How.Since = 0
			}
			parks = append(parks, p)
			continue
		}
		for _, name := range k.needs.limiters {
			before[name] = true
		}
	}
	parked, err := in.park(ctx, queue, parks, in.l.lines.ParkPending)
	if err != nil {
		in.l.logger.Debug("cannot park pending jobs", "queue", queue, "error", err)
		return called, takenMost, false
	}
	in.sorts[queue] = sortNext(last, len(seen), called, len(parks), cut, in.few[queue], time.Since(began))
	if in.few[queue] += len(seen); in.sorts[queue] == 0 || !fewPark(len(seen), called, len(parks)) {
		delete(in.few, queue)
	}
	switch {
	case len(seen) == 0:
		in.most = 1
		in.l.gate.empty(queue, began)
		return 0, 0, false
	case len(parks) == len(seen):
		in.l.gate.arrived(queue, "", began) // whatever was called before is not there any more
		if parked > 0 {
			return 0, 0, true
		}
	}
	return called, takenMost, false // if nothing has parked, a take goes on in any case
}

// sortTaken parks those of the tasks just taken that have to queue behind others, before asynq sees
// them. It returns the rest, how many of these had been called, and how many sortPending could have parked.
func (in *intake) sortTaken(ctx context.Context, queue string, tasks []line.Taken, began time.Time) (rest []line.Taken, called, early int) {
	whole := in.l.caller.knowsLines(queue)
	if !in.l.rules.share && !whole {
		return tasks, 0, 0
	}
	var parks []sorted
	rest = tasks[:0]
	for _, t := range tasks {
		p, ok := in.parks(in.candidate(ctx, queue, t, whole, began), nil, began)
		if !ok {
			rest = append(rest, t)
			if t.Wait.State.Near() {
				called++
			}
			continue
		}
		if parks = append(parks, p); !p.inOrder {
			early++
		}
		in.l.gate.arrived(queue, t.Wait.State, began)
	}
	if _, err := in.park(ctx, queue, parks, in.l.lines.ParkAll); err != nil {
		in.l.logger.Warn("cannot park jobs; asynq brings them back when their leases are over", "queue", queue, "jobs", len(parks), "error", err)
	}
	return rest, called, early
}

// park parks tasks together, and returns how many did park.
func (in *intake) park(ctx context.Context, queue string, parks []sorted, park func(context.Context, string, []line.ToPark) ([]bool, error)) (n int, err error) {
	if len(parks) == 0 {
		return 0, nil
	}
	tasks := make([]line.ToPark, len(parks))
	for i, p := range parks {
		tasks[i] = p.task
	}
	parked, err := park(ctx, queue, tasks)
	for i, p := range parks {
		if err != nil || !parked[i] {
			continue
		}
		n++
		in.l.logPutOff(queue, p.task.ID, p.typ, p.why)
		in.l.caller.parked(queue, p.task.How)
		p.limit.parked.Add(1)
		p.limit.denied.Add(1)
		p.rule.counts.attempt(p.why)
	}
	return n, err
}

// knowsLines reports whether a queue has lines of limiters, and this process knows all of them.
func (c *caller) knowsLines(queue string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.lineup(queue)
	if u.more {
		return false
	}
	for name := range u.lines {
		if !line.IsBlocked(name) {
			return true
		}
	}
	return false
}

// sorted is a task that parks without being tried, and why it waits.
type sorted struct {
	task    line.ToPark
	typ     string
	why     *ThrottledError
	inOrder bool // it needs slots that are given in the order in which tasks were taken
	limit   *limitCounts
	rule    *rule
}

// candidate is a task of a queue, and what it has to acquire as far as that is known.
type candidate struct {
	queue string
	task  line.Taken
	text  string // its message
	typ   string
	needs needs
	parks bool        // it parks without being tried, if it has to queue behind others
	ahead string      // one of its limiters that has others in line; empty if none has
	job   *asynq.Task // as its handler gets it
}

// candidate reads a task. whole says that the queue has lines and that this process knows all of them. If
// it has to ask Redis for the lines of a task, that is worth it only for tasks of tenants.
func (in *intake) candidate(ctx context.Context, queue string, t line.Taken, whole bool, now time.Time) candidate {
	k := candidate{queue: queue, task: t}
	k.text, _ = t.Message.(string)
	m, err := line.ParseMessage(k.text)
	if err != nil || t.Wait.State.Near() {
		return k
	}
	k.typ, k.job = m.Type, asynq.NewTaskWithHeaders(m.Type, m.Payload, m.Headers)
	k.needs, err = in.l.rules.of(plan.Task{Type: m.Type, Queue: queue, Payload: m.Payload, Headers: m.Headers})
	switch {
	case err != nil, len(k.needs.limiters) == 0, k.needs.rule.never, k.needs.rule.inFlight != nil:
	case !k.needs.shared() && (!whole || len(k.needs.slots) > 0 || k.needs.rule.Acquires):
	case m.Retried > 0 && m.Retried >= m.MaxRetry, !m.Deadline.IsZero() && m.Deadline.Before(now): // it may be over, which is not for the limits to decide
	default:
		k.ahead, err = in.l.caller.ahead(ctx, queue, k.needs)
		k.parks = err == nil
	}
	return k
}

// parks reports whether a task parks without being tried: because one of its limiters has tasks in
// line, or because it is among tasks that want more permits than a limiter gives at once. These wait
// in any case; from the line of the limiter that lets them wait longest they are called together.
func (in *intake) parks(k candidate, wanted map[string]int64, now time.Time) (p sorted, ok bool) {
	if !k.parks {
		return p, false
	}
	limiter, most := k.ahead, time.Duration(0)
	for i, d := range k.needs.draws {
		name := k.needs.limiters[i]
		if takes := timeFor(wanted[name], d.Rate); k.ahead == "" && wanted[name] > d.Rate.Permits && takes > most {
			limiter, most = name, takes
		}
	}
	if limiter == "" || !k.needs.shared() && !in.l.asks(k.job) {
		return p, false
	}
	name, draw := k.needs.lineOf(limiter), k.needs.draws[slices.Index(k.needs.limiters, limiter)]
	why := &ThrottledError{Limiter: limiter, RetryAfter: in.l.caller.estimateWait(k.queue, line.Whole(name), draw.Rate)}
	return sorted{
		task: line.ToPark{ID: k.task.ID, Message: line.WithError(k.text, why.Error(), now),
			How: line.Parking{Line: name, Since: k.task.Arrival(), Cost: k.needs.costOf(limiter), Refused: refusedBefore(k.task), By: k.task.By, AtOnce: true}},
		typ: k.typ, why: why, inOrder: len(k.needs.ordered()) > 0, limit: &in.l.rules.limits[draw.Limit].counts, rule: k.needs.rule,
	}, true
}
