package line

import (
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// returned is a grant whose permits are given back.
type returned struct {
	grant grant
	ns    []int64
	by    *Waiter // who asks for another in exchange; nil if nobody does
	left  *Waiter // whose caller waits until Redis has it; nil if nobody does

	announce int64    // the members whose waiters are to hear of it, a bit for each
	release  *Release // set if the permits were handed out; nil if they were not
	filled   Local    // when a stock had them, of which they are what is left; zero: they are not
}

// kind tells why permits are given back.
func (r *returned) kind() script.ReturnKind {
	switch {
	case r.release != nil, r.filled != 0:
		return script.Came
	case r.by != nil && r.by.state == queued:
		return script.Exchanged
	}
	return script.Unused
}

// freeShare and freeTime bound which returned permits others hear of: at least one part in freeShare of the limit within a
// span, or as many as the limit gives in freeTime, if these are fewer. Of a quota of hours, each permit is worth a call.
const (
	freeShare = 8
	freeTime  = time.Second
)

// unannounced is how many permits of a member went back since a time, of which those who wait did not hear.
type unannounced struct {
	n     int64
	since Local
}

// giveBack gives back permits for which nobody asks in exchange. Waiters of this process whose grants are for a later time
// move up with the same call.
func (l *Line) giveBack(r returned, now Local) {
	r.announce = l.toAnnounce(r.grant, r.ns, now)
	l.returns = append(l.returns, r)
	later := func(w *Waiter) bool { return w.grant.at > r.grant.at }
	if r.announce != 0 && l.moveUpAt == 0 && (l.calling || slices.ContainsFunc(l.holders, later)) { // a call may bring later ones
		l.freed(now)
	}
}

// toAnnounce counts permits that go back unused: they came too late, or their caller left. It returns the members, a bit for
// each, whose waiters in this and other processes are to hear of it. What is reserved for later may leave no room for a new
// request. So only those who wait already can have the permits: they move up, as after a release. That costs Redis more than
// anything else, so it is not done for a few permits.
func (l *Line) toAnnounce(g grant, ns []int64, now Local) (members int64) {
	if l.unannounced == nil {
		l.unannounced = make([]unannounced, len(l.config))
	}
	for i, s := range l.config {
		if !countsIn(s, g.due, now.Add(freshFor)) { // by then the last have moved up
			continue
		}
		u := &l.unannounced[i]
		if now.Sub(u.since) >= s.Span() {
			*u = unannounced{since: now}
		}
		if u.n += ns[i]; u.n >= (s.Rate+freeShare-1)/freeShare || s.PerPermit(u.n) >= freeTime {
			*u = unannounced{since: now}
			members |= 1 << i
		}
	}
	return members
}

// countsIn reports whether a member still counts permits that were due at a time, whatever its guard is.
func countsIn(s script.Settings, due, now Local) bool { return now.Sub(due) < s.Interval }
