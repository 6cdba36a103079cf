package asynqlimit

import (
	"context"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/plan"
)

const (
	// sortLeast and sortMost bound how many tasks one call takes while those that come
	// have to park.
	sortLeast, sortMost = 8, 200
	// sortLasts is how long it may take to park them: Redis answers others meanwhile,
	// and those that were called wait in the queue behind them.
	sortLasts = 20 * time.Millisecond
)

// sortNext is how many tasks to take when the last take, of so many, lasted so long;
// 0 if none of them had to park.
func sortNext(last int, parked bool, lasted time.Duration) int {
	switch {
	case !parked:
		return 0
	case last == 0:
		return 4 * sortLeast
	case lasted > sortLasts:
		return max(last/2, sortLeast)
	}
	return min(2*last, sortMost)
}

// sort parks those of the tasks, which were just taken, that share a limiter for which
// others are in line, and returns the others. asynq does not see them: a tenant that
// comes now is in its line at once, however many tasks of others were enqueued before.
func (in *intake) sort(ctx context.Context, queue string, tasks []line.Taken, began time.Time) []line.Taken {
	if !in.l.rules.share {
		return tasks
	}
	var ids []string
	var places []line.Place
	rest := tasks[:0]
	for _, t := range tasks {
		place, parks := in.place(ctx, queue, t)
		if !parks {
			rest = append(rest, t)
			continue
		}
		ids, places = append(ids, t.ID), append(places, place)
		in.l.gate.arrived(queue, t.Wait.State, began)
	}
	if len(ids) == 0 {
		return rest
	}
	if err := in.l.lines.ParkAll(ctx, queue, ids, places); err != nil {
		in.l.logger.Warn("cannot park jobs; asynq brings them back when their leases are over", "queue", queue, "jobs", len(ids), "error", err)
		return rest
	}
	for _, p := range places {
		in.l.caller.parked(queue, p)
		in.parkedCount(p)
	}
	return rest
}

// place says whether a task parks without being tried, and where.
func (in *intake) place(ctx context.Context, queue string, t line.Taken) (p line.Place, parks bool) {
	if t.Wait.State.Near() {
		return p, false
	}
	text, _ := t.Message.(string)
	m, err := line.ParseMessage(text)
	if err != nil {
		return p, false
	}
	needs, err := in.l.rules.of(plan.Task{Type: m.Type, Queue: queue, Payload: m.Payload, Headers: m.Headers})
	if err != nil || !needs.shared() || needs.rule.inFlight != nil {
		return p, false
	}
	limiter, err := in.l.caller.ahead(ctx, queue, needs)
	if err != nil || limiter == "" {
		return p, false
	}
	return line.Place{Line: needs.lineOf(limiter), Since: t.Arrival(), Cost: needs.costOf(limiter), Refused: t.Wait.Refused, By: t.By, AtOnce: true}, true
}

// parkedCount counts a task that was parked.
func (in *intake) parkedCount(p line.Place) {
	limiter, _, _ := line.Split(p.Line)
	if limit := in.l.rules.limitOf(limiter); limit != nil {
		limit.counts.parked.Add(1)
		limit.counts.denied.Add(1)
	}
}

// giveBackTaken puts tasks for which there is no place back to the head of their queue.
func (in *intake) giveBackTaken(ctx context.Context, queue string, tasks []line.Taken) error {
	ids, places := make([]string, len(tasks)), make([]line.Place, len(tasks))
	slices.Reverse(tasks) // each goes ahead of those that are back, and moves none of them
	for i, t := range tasks {
		ids[i] = t.ID
		places[i] = line.Place{By: t.By, Since: t.Arrival(), Cost: t.Wait.Cost, Refused: t.Wait.Refused, Line: t.Wait.Line, Untried: !t.Wait.State.Near()}
	}
	return in.l.lines.GiveBackAll(ctx, queue, ids, places)
}
