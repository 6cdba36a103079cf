package line

import "time"

const (
	// gatherFor is how long a newcomer waits at least for others to ask with it. It waits if all
	// it can get is a grant that is much further ahead. It also waits if a limit binds, and
	// callers that were handed its permits are about to come back. Where the limit does not bind,
	// gatherFor is also how long a newcomer waits at most.
	gatherFor = 2 * time.Millisecond
	// gatherClose is how long a newcomer waits at most if grants are due soon after each other,
	// as grants made at different times are. gatherFar is how long it waits at most if grants are
	// due far ahead.
	gatherClose, gatherFar = 10 * time.Millisecond, 32 * time.Millisecond
	// gatherReach is how long callers that come back at once wait at most. They wait until the
	// permits that they had are within their reach again.
	gatherReach = 50 * time.Millisecond
	// boundFor is how long a limit still counts as one that binds after the latest grant was
	// due that somebody had to wait for.
	boundFor = 100 * time.Millisecond
	// many is how many must be about to come for the wait to be worth it.
	many = 8
	// deadlineShare bounds how long a request waits for others: one part in so
	// many of the time until its deadline.
	deadlineShare = 16
)

// gathering is the wait for those who come back. Where all wait for one limit, many get their
// permits at once and ask for the next ones together. One call is enough if the first of them
// waits for the last.
type gathering struct {
	bound  Local // until when the limit counts as one that binds
	left   int   // waiters that were handed permits just now and have not come back
	leftAt Local // when the latest of them was handed its permits
	until  Local // when to ask without those who are missing; zero: now
	least  Local // when to ask if nobody is missing
	latest Local // when to ask although some are missing, for somebody's deadline; zero: nobody's
}

// binds reports whether the limit holds its waiters up, or did just now.
func (l *Line) binds(now Local) bool { return l.binding || now < l.gathering.bound }

// waited records that somebody has to wait for a grant until due.
func (g *gathering) waited(due Local) { g.bound = max(g.bound, due.Add(boundFor)) }

// handed records that n waiters were handed permits. While a batch is gathered it does
// nothing: begin has already counted the grants that are due in that time.
func (g *gathering) handed(n int, now Local) {
	if g.until != 0 {
		return
	}
	if now.Sub(g.leftAt) > gatherFor {
		g.left = 0 // the earlier ones do something else
	}
	g.left, g.leftAt = g.left+n, now
}

// joined records a newcomer, who may be one of those who come back.
func (g *gathering) joined() {
	if g.left--; g.left <= 0 {
		g.left, g.until = 0, min(g.until, g.least)
	}
}

// missing is how many were handed permits just now and have not come back.
func (g *gathering) missing(now Local) int {
	if now.Sub(g.leftAt) > gatherFor {
		g.left = 0
	}
	return g.left
}

// begin has the next batch wait for n waiters who may be about to come, if they are many:
// until the time until at most, and until least even if all have come.
func (g *gathering) begin(n int, least, until, now Local) {
	if n >= many {
		g.left, g.leftAt, g.least, g.until = n, now, least, max(least, until)
		g.hasten()
	}
}

// limit records a newcomer with a deadline, who must not wait long for others.
func (g *gathering) limit(deadline, now Local) {
	latest := now.Add(max(deadline.Sub(now), 0) / deadlineShare)
	if g.latest == 0 || latest < g.latest {
		g.latest = latest
	}
	g.hasten()
}

// hasten lets nobody wait beyond latest.
func (g *gathering) hasten() {
	if g.latest != 0 {
		g.least, g.until = min(g.least, g.latest), min(g.until, g.latest)
	}
}

// asked starts over: who has not come by now may never come.
func (g *gathering) asked() { g.left, g.until = 0, 0 }

// taken is for how long everything that a request for ns could get is taken: this line asked
// for no more than ns before, and has a grant that is so far ahead.
func (l *Line) taken(ns []int64, now Local) time.Duration {
	for i, n := range l.fullFor {
		if ns[i] < n {
			return 0
		}
	}
	return l.fullUntil.Sub(now)
}

// gatherUntil is until when requests for ns may wait for others. Nobody is served later for
// it as long as everything is taken meanwhile.
func (l *Line) gatherUntil(ns []int64, now Local) Local {
	ahead := l.taken(ns, now)
	// A little later, so that those can come back who get the last of what is taken.
	soon := min(ahead+time.Millisecond, gatherClose)
	return now.Add(max(gatherFor, soon, min(ahead/16, gatherFar)))
}

// gather begins to gather those who ask as ns does. Where the limit does not bind, it waits
// no longer than a call takes, which is how much somebody loses who comes just after a call.
// It does not wait at all where those who come back find a stock.
func (l *Line) gather(ns []int64, now Local) {
	if now >= l.gathering.bound {
		if now.Sub(l.stock.until) > boundFor {
			l.gathering.begin(l.gathering.missing(now), now, now.Add(min(l.roundTrips.least(), gatherFor)), now)
		}
		return
	}
	least, until := now, l.gatherUntil(ns, now)
	n := l.gathering.missing(now) + l.dueBy(until)
	if l.hadShare(int64(n)*ns[0], now) {
		// What was used now is available again after a span, and comes within reach one
		// horizon before that. Who asks sooner is only told so.
		least = now.Add(min(l.Span()-l.horizon(ns), gatherReach))
	}
	l.gathering.begin(n, least, until, now)
}

// hadShare reports whether this process has lately had about its equal share of its limiter,
// with n permits more. (In a group it cannot tell whose share counts.)
func (l *Line) hadShare(n int64, now Local) bool {
	return len(l.config) == 1 && float64(l.used.lately(now)+n) >= 0.75*equalShare(l.config[0], l.contenders)
}

// dueBy is how many grants are due before until.
func (l *Line) dueBy(until Local) (n int) {
	for _, w := range l.holders {
		if w.grant.due < until {
			n++
		}
	}
	return n
}
