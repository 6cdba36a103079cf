package asynqlimit

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// A task is stranded if it only waited and its lease is over, because Redis was away: asynq does not end
// its attempt any more, and leaves the task to its recoverer, which comes a minute later. So the caller parks it
// or gives it back when Redis answers again, unless somebody else has done so by then.

const (
	// upFor is for how long Redis has to answer first. asynq's heartbeat has to be done with the attempt,
	// and may wait for an answer that does not come, on a connection that is dead, for some seconds when Redis is back.
	upFor = 10 * time.Second
	// strandedMost is how many tasks one call moves at most.
	strandedMost = 100
	// endsWithin is how long after the middleware has returned asynq begins to end an attempt.
	endsWithin = 2 * time.Second
)

// hasLease reports whether its lease is not over. Whoever calls it has locked a.
func (a *attempt) hasLease() bool { return a.leased.IsZero() || time.Now().Before(a.leased) }

// leases is hasLease for those who have not locked a.
func (a *attempt) leases() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hasLease()
}

// extend notes that asynq has extended the lease. If it was over before Redis said so, it stays over: for
// asynq, too.
func (a *attempt) extend(ends time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hasLease() {
		a.leased = ends
	}
}

// leaseEnd is when a lease ends, which Redis has in seconds after 1970, by a clock that does not step.
func leaseEnd(unix int64) time.Time {
	now := time.Now()
	return now.Add(time.Unix(unix, 0).Sub(now))
}

// strandedNow reports whether the task only waited, the attempt is over, and asynq has not ended it: it does not
// if the lease is over. Whoever calls it has locked a.
func (a *attempt) strandedNow(now time.Time) bool {
	if !a.over || a.noted || a.hasLease() || now.Sub(a.last) <= endsWithin {
		return false
	}
	f, _ := a.endingNow(line.Retry)
	return f == parks || f == returns
}

// endStranded moves those tasks, as long as Redis answers for their queues.
func (c *caller) endStranded(ctx context.Context, stranded []*attempt, now time.Time) {
	of := map[string][]*attempt{}
	for _, a := range stranded {
		if since := c.upSince[a.queue]; !since.IsZero() && now.Sub(since) >= upFor {
			of[a.queue] = append(of[a.queue], a)
		}
	}
	for queue, those := range of {
		for some := range slices.Chunk(those, strandedMost) {
			if err := c.move(ctx, queue, some); err != nil {
				c.l.logger.Debug("cannot put back jobs whose leases are over; trying on", "queue", queue, "jobs", len(some), "error", err)
				break
			}
		}
	}
}

// move parks tasks of a queue, or gives them back.
func (c *caller) move(ctx context.Context, queue string, stranded []*attempt) error {
	var back, away []*attempt
	var ids []string
	var how []line.Parking
	var parkings []line.ToPark
	room := c.l.rooms.of(stranded[0])
	landed, cancel := context.WithTimeout(ctx, leaveLasts)
	defer cancel()
	for _, a := range stranded {
		room.stay(landed, a)
		if f, parking := a.ending(line.Retry); f == returns {
			back, ids, how = append(back, a), append(ids, a.id), append(how, parking)
			c.l.attempts.wentBack(a)
		} else {
			away, parkings = append(away, a), append(parkings, line.ToPark{ID: a.id, How: parking})
		}
	}
	var berr, perr error
	if len(back) > 0 {
		berr = c.l.lines.GiveBackAll(ctx, queue, ids, how)
		c.moved(back, berr)
	}
	if len(away) > 0 {
		var parked []bool
		parked, perr = c.l.lines.ParkAll(ctx, queue, parkings)
		for i, did := range parked {
			if did {
				c.parked(queue, parkings[i].How)
			}
		}
		c.moved(away, perr)
	}
	return errors.Join(berr, perr)
}

// moved notes that stranded tasks have moved, or have to wait on.
func (c *caller) moved(stranded []*attempt, err error) {
	for _, a := range stranded {
		if err != nil {
			c.l.rooms.of(a).waits(a)
			continue
		}
		c.l.ended(a.queue, a.id, false)
		a.note()
		c.l.attempts.drop(a)
	}
}

// goesOnWaiting reports whether the task of a context goes on waiting if asynq ends its attempt: then
// nothing has failed.
func (l *Limits) goesOnWaiting(ctx context.Context) bool {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	a := l.attempts.get(queue, id)
	if a == nil {
		return false
	}
	f, _ := a.ending(line.Retry)
	return f == parks || f == returns
}
