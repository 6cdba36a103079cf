package throttle

import "time"

const (
	// gatherFor is how long a newcomer waits for others to ask with it, at the
	// least: when all it can get is a place that is much further ahead, or when
	// others are about to come who were handed permits of a limit that binds. It
	// is also the most where the limit does not bind.
	gatherFor = 2 * time.Millisecond
	// gatherClose is how long it waits for those who have places that fall due
	// one soon after the other, as places do that were had at different times;
	// gatherFar how long at the most where the turns are far ahead.
	gatherClose, gatherFar = 10 * time.Millisecond, 32 * time.Millisecond
	// gatherReach is how long those wait at the most who come back at once, for
	// what they had to come within their reach again.
	gatherReach = 50 * time.Millisecond
	// boundFor is how long after the turn of the latest place that had to be
	// waited for a limit counts as one that binds.
	boundFor = 100 * time.Millisecond
	// many is how many must be about to come for a call to be worth the wait.
	many = 8
	// deadlineShare bounds how long a request waits for others: one part in so
	// many of the time until its deadline.
	deadlineShare = 16
)

// gathering is the wait for those who come back. Where all wait for one limit,
// the permits of many come at once, and they ask for the next ones together:
// in one call, if the first of them waits for the last.
type gathering struct {
	bound  time.Time // until when the limit counts as one that binds
	left   int       // waiters that were handed permits a moment ago, and have not come back
	leftAt time.Time // when the latest of them was
	until  time.Time // when to ask without those who are missing; zero: now
	least  time.Time // when to ask if nobody is missing
	latest time.Time // when to ask though some are missing, for somebody's deadline; zero: nobody's
}

// binds reports whether the limit holds its waiters up, or did a moment ago.
func (q *queue) binds(now time.Time) bool { return q.binding || now.Before(q.gathering.bound) }

// waited takes up that a place had to be waited for until due.
func (g *gathering) waited(due time.Time) { g.bound = later(g.bound, due.Add(boundFor)) }

// handed takes up that n waiters were handed permits. Of places that fall due
// while a batch is gathered, begin has taken account.
func (g *gathering) handed(n int, now time.Time) {
	if !g.until.IsZero() {
		return
	}
	if now.Sub(g.leftAt) > gatherFor {
		g.left = 0 // those before do something else
	}
	g.left, g.leftAt = g.left+n, now
}

// joined takes up a newcomer, who may be one of those.
func (g *gathering) joined() {
	if g.left--; g.left <= 0 {
		g.left, g.until = 0, earlier(g.until, g.least)
	}
}

// missing is how many were handed permits a moment ago, and have not come back.
func (g *gathering) missing(now time.Time) int {
	if now.Sub(g.leftAt) > gatherFor {
		g.left = 0
	}
	return g.left
}

// begin has the next batch wait until then for n who may be about to come, if
// they are many, and until least though all have come.
func (g *gathering) begin(n int, least, until, now time.Time) {
	if n >= many {
		g.left, g.leftAt, g.least, g.until = n, now, least, later(least, until)
		g.hasten()
	}
}

// limit takes up a newcomer with a deadline, who is not to wait long for others.
func (g *gathering) limit(deadline, now time.Time) {
	latest := now.Add(max(deadline.Sub(now), 0) / deadlineShare)
	if g.latest.IsZero() || latest.Before(g.latest) {
		g.latest = latest
	}
	g.hasten()
}

// hasten has nobody wait beyond the latest moment.
func (g *gathering) hasten() {
	if !g.latest.IsZero() {
		g.least, g.until = earlier(g.least, g.latest), earlier(g.until, g.latest)
	}
}

// asked begins anew: who has not come by now may never do.
func (g *gathering) asked() { g.left, g.until = 0, time.Time{} }

// taken is how long all that a request for ns could have is taken: this queue
// asked for as little before, and has a place that far ahead.
func (q *queue) taken(ns []int64, now time.Time) time.Duration {
	for i, n := range q.fullFor {
		if ns[i] < n {
			return 0
		}
	}
	return q.fullUntil.Sub(now)
}

// gatherUntil is how long requests for ns may wait for others: it costs nobody
// a turn as long as all is taken meanwhile.
func (q *queue) gatherUntil(ns []int64, now time.Time) time.Time {
	ahead := q.taken(ns, now)
	soon := min(ahead+time.Millisecond, gatherClose) // a little later, for those to come back whose turns are the last of it
	return now.Add(max(gatherFor, soon, min(ahead/16, gatherFar)))
}

// gather begins to gather those who ask as ns does. Where the limit does not
// bind it waits no longer than a call takes, which is what it costs to come just
// after one; and not at all where those who come back find a stock.
func (q *queue) gather(ns []int64, now time.Time) {
	if !now.Before(q.gathering.bound) {
		if now.Sub(q.stock.until) > boundFor {
			q.gathering.begin(q.gathering.missing(now), now, now.Add(min(q.roundTrips.least(), gatherFor)), now)
		}
		return
	}
	least, until := now, q.gatherUntil(ns, now)
	n := q.gathering.missing(now) + q.dueBy(until)
	if q.spent(int64(n)*ns[0], now) {
		// What was used now is to be had again after a span, and within reach a
		// horizon before that: who asks sooner is only told so.
		least = now.Add(min(q.span()-q.horizon(ns), gatherReach))
	}
	q.gathering.begin(n, least, until, now)
}

// spent reports whether this process had about its equal share of its limiter
// lately, with n permits more. (Of a group it cannot tell whose share counts.)
func (q *queue) spent(n int64, now time.Time) bool {
	return len(q.members) == 1 && float64(q.used.lately(now)+n) >= 0.75*equalShare(q.config[0], q.contenders)
}

// dueBy is how many places fall due until then.
func (q *queue) dueBy(until time.Time) (n int) {
	for w := range q.placed {
		if w.place.due.Before(until) {
			n++
		}
	}
	return n
}
