package line

import "time"

const (
	// gatherFor is how long a newcomer waits for others to ask with it, at the
	// least: when all it can get is a place that is much further ahead, or when
	// others are about to come who were handed permits of a limit that binds. It
	// is also the most where the limit does not bind.
	gatherFor = 2 * time.Millisecond
	// gatherClose is how long it waits for those who have places that fall due
	// one soon after the other, as places do that were had at different times;
	// gatherFar how long at most where the turns are far ahead.
	gatherClose, gatherFar = 10 * time.Millisecond, 32 * time.Millisecond
	// gatherReach is how long those wait at most who come back at once, for
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
	bound  Local // until when the limit counts as one that binds
	left   int   // waiters that were handed permits a moment ago, and have not come back
	leftAt Local // when the latest of them was
	until  Local // when to ask without those who are missing; zero: now
	least  Local // when to ask if nobody is missing
	latest Local // when to ask though some are missing, for somebody's deadline; zero: nobody's
}

// binds reports whether the limit holds its waiters up, or did a moment ago.
func (l *Line) binds(now Local) bool { return l.binding || now < l.gathering.bound }

// waited takes up that a place had to be waited for until due.
func (g *gathering) waited(due Local) { g.bound = max(g.bound, due.Add(boundFor)) }

// handed takes up that n waiters were handed permits. Of places that fall due
// while a batch is gathered, begin has taken account.
func (g *gathering) handed(n int, now Local) {
	if g.until != 0 {
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
		g.left, g.until = 0, min(g.until, g.least)
	}
}

// missing is how many were handed permits a moment ago, and have not come back.
func (g *gathering) missing(now Local) int {
	if now.Sub(g.leftAt) > gatherFor {
		g.left = 0
	}
	return g.left
}

// begin has the next batch wait until then for n who may be about to come, if
// they are many, and until least though all have come.
func (g *gathering) begin(n int, least, until, now Local) {
	if n >= many {
		g.left, g.leftAt, g.least, g.until = n, now, least, max(least, until)
		g.hasten()
	}
}

// limit takes up a newcomer with a deadline, who is not to wait long for others.
func (g *gathering) limit(deadline, now Local) {
	latest := now.Add(max(deadline.Sub(now), 0) / deadlineShare)
	if g.latest == 0 || latest < g.latest {
		g.latest = latest
	}
	g.hasten()
}

// hasten has nobody wait beyond the latest moment.
func (g *gathering) hasten() {
	if g.latest != 0 {
		g.least, g.until = min(g.least, g.latest), min(g.until, g.latest)
	}
}

// asked begins again: who has not come by now may never do.
func (g *gathering) asked() { g.left, g.until = 0, 0 }

// taken is how long all that a request for ns could have is taken: this line
// asked for as little before, and has a place that far ahead.
func (l *Line) taken(ns []int64, now Local) time.Duration {
	for i, n := range l.fullFor {
		if ns[i] < n {
			return 0
		}
	}
	return l.fullUntil.Sub(now)
}

// gatherUntil is how long requests for ns may wait for others: it costs nobody
// a turn as long as all is taken meanwhile.
func (l *Line) gatherUntil(ns []int64, now Local) Local {
	ahead := l.taken(ns, now)
	soon := min(ahead+time.Millisecond, gatherClose) // a little later, for those to come back whose turns are the last of it
	return now.Add(max(gatherFor, soon, min(ahead/16, gatherFar)))
}

// gather begins to gather those who ask as ns does. Where the limit does not
// bind it waits no longer than a call takes, which is what it costs to come just
// after one; and not at all where those who come back find a stock.
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
		// What was used now is to be had again after a span, and within reach a
		// horizon before that: who asks sooner is only told so.
		least = now.Add(min(l.span()-l.horizon(ns), gatherReach))
	}
	l.gathering.begin(n, least, until, now)
}

// spent reports whether this process had about its equal share of its limiter
// lately, with n permits more. (Of a group it cannot tell whose share counts.)
func (l *Line) hadShare(n int64, now Local) bool {
	return len(l.config) == 1 && float64(l.used.lately(now)+n) >= 0.75*equalShare(l.config[0], l.contenders)
}

// dueBy is how many places fall due until then.
func (l *Line) dueBy(until Local) (n int) {
	for _, w := range l.holders {
		if w.grant.due < until {
			n++
		}
	}
	return n
}
