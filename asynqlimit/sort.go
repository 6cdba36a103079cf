package asynqlimit

import (
	"context"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/plan"
)

const (
	// sortMost is how many tasks at most one call takes while the tasks that come have to park.
	sortMost = 200
	// sortLasts is how long it may take to park them: Redis has to answer others, too, and called
	// tasks wait in the queue behind them.
	sortLasts = 20 * time.Millisecond
)

// sortNext is how many tasks to take next, after a take of last tasks at most that lasted so
// long: came is how many tasks came, parked how many of them parked. It doubles while nearly all
// of them park. 0: take no more than there is capacity for. If it lasted longer than sortLasts,
// take half as many.
func sortNext(last, came, parked int, lasted time.Duration) int {
	switch {
	case parked == 0, 2*parked < came:
		return 0
	case lasted > sortLasts:
		return last / 2
	case 8*parked < 7*came:
		return last
	}
	return min(2*last, sortMost)
}

// sort parks those of the tasks just taken that have to queue behind others in line for one of
// their limiters, and returns the rest. asynq does not see the parked ones. It costs little to
// park many tasks together, and a tenant that comes now is in its line at once, however many
// tasks of others were enqueued before.
func (in *intake) sort(ctx context.Context, queue string, tasks []line.Taken, began time.Time) []line.Taken {
	whole := in.l.caller.knowsLines(queue)
	if !in.l.rules.share && !whole {
		return tasks
	}
	var ids []string
	var messages []any
	var parkings []line.Parking
	var parks []sorted
	rest := tasks[:0]
	for _, t := range tasks {
		p, ok := in.parks(ctx, queue, t, whole)
		if !ok {
			rest = append(rest, t)
			continue
		}
		text, _ := t.Message.(string)
		ids, parkings, parks = append(ids, t.ID), append(parkings, p.parking), append(parks, p)
		messages = append(messages, line.WithError(text, p.why.Error(), began))
		in.l.gate.arrived(queue, t.Wait.State, began)
	}
	if len(ids) == 0 {
		return rest
	}
	if err := in.l.lines.ParkAll(ctx, queue, ids, messages, parkings); err != nil {
		in.l.logger.Warn("cannot park jobs; asynq brings them back when their leases are over", "queue", queue, "jobs", len(ids), "error", err)
		return rest
	}
	for i, p := range parks {
		in.l.logPutOff(queue, ids[i], p.typ, p.why)
		in.l.caller.parked(queue, p.parking)
		p.limit.parked.Add(1)
		p.limit.denied.Add(1)
		p.rule.counts.attempt(p.why)
	}
	return rest
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

// sorted is how a task parks without being tried, and why it waits.
type sorted struct {
	typ     string
	parking line.Parking
	why     *ThrottledError
	limit   *limitCounts
	rule    *rule
}

// parks reports whether a task parks without being tried. whole says that the queue has lines and
// that this process knows all of them. If it has to ask Redis for the lines of a task, that is
// worth it only for tasks of tenants.
func (in *intake) parks(ctx context.Context, queue string, t line.Taken, whole bool) (p sorted, ok bool) {
	if t.Wait.State.Near() {
		return p, false
	}
	text, _ := t.Message.(string)
	m, err := line.ParseMessage(text)
	if err != nil {
		return p, false
	}
	needs, err := in.l.rules.of(plan.Task{Type: m.Type, Queue: queue, Payload: m.Payload, Headers: m.Headers})
	if err != nil || len(needs.limiters) == 0 || needs.rule.never || needs.rule.inFlight != nil {
		return p, false
	}
	if !needs.shared() && (!whole || len(needs.slots) > 0 || needs.rule.Acquires || !in.l.handledWithPermits(m.Type)) {
		return p, false
	}
	if m.Retried > 0 && m.Retried >= m.MaxRetry || !m.Deadline.IsZero() && m.Deadline.Before(time.Now()) {
		return p, false // it may be over, which is not for the limits to decide
	}
	limiter, err := in.l.caller.ahead(ctx, queue, needs)
	if err != nil || limiter == "" {
		return p, false
	}
	name, draw := needs.lineOf(limiter), needs.draws[slices.Index(needs.limiters, limiter)]
	return sorted{
		typ:     m.Type,
		parking: line.Parking{Line: name, Since: t.Arrival(), Cost: needs.costOf(limiter), Refused: refusedBefore(t), By: t.By, AtOnce: true},
		why:     &ThrottledError{Limiter: limiter, RetryAfter: in.l.caller.estimateWait(queue, line.Whole(name), draw.Rate)},
		limit:   &in.l.rules.limits[draw.Limit].counts,
		rule:    needs.rule,
	}, true
}

// giveBackTaken puts tasks for which there is no capacity back at the head of their queue.
func (in *intake) giveBackTaken(ctx context.Context, queue string, tasks []line.Taken) error {
	ids, parkings := make([]string, len(tasks)), make([]line.Parking, len(tasks))
	slices.Reverse(tasks) // each goes ahead of those put back before it, so that none of them has to move
	for i, t := range tasks {
		ids[i] = t.ID
		parkings[i] = line.Parking{By: t.By, Since: t.Arrival(), Cost: t.Wait.Cost, Refused: t.Wait.Refused, Line: t.Wait.Line, Untried: !t.Wait.State.Near()}
	}
	return in.l.lines.GiveBackAll(ctx, queue, ids, parkings)
}
