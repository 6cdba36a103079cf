package line

import (
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// returned is a grant whose permits are given back.
type returned struct {
	grant grant
	ns    []int64
	by    *Waiter // who asks for another in exchange; nil if nobody does
	left  *Waiter // whose caller waits until Redis has it; nil if nobody does

	tells   bool     // those who wait are to hear that the permits are free
	release *Release // set if the permits were handed out; nil if they were not
	filled  Local    // when a stock had them, of which they are what is left; zero: they are not
}

// kind tells why permits are given back.
func (r *returned) kind() script.ReturnKind {
	switch {
	case r.release != nil, r.filled != 0:
		return script.Came
	case r.tells:
		return script.Free
	case r.by != nil && r.by.state == queued:
		return script.Exchanged
	}
	return script.Unused
}

// freeShare is what part of a limit has to come back within a span for others to hear of it; or as many permits as come
// free in freeTime, if these are fewer: of a quota of hours each is worth a call.
const (
	freeShare = 8
	freeTime  = time.Second
)

// untold is how many permits of a member went back since a time, of which nobody was told.
type untold struct {
	n     int64
	since Local
}

// giveBack gives back permits for which nobody asks in exchange.
func (l *Line) giveBack(r returned, now Local) {
	r.tells = l.tells(r.grant, r.ns, now)
	l.returns = append(l.returns, r)
}

// tells reports whether those who wait, in this and other processes, are to hear that permits go back which were not used:
// they came too late, or their caller left. What is reserved for later may leave no room for whoever asks next, so only
// those who wait already can have them: they move up, as after a release. That costs Redis more than anything else, so a
// few permits are not worth it. In this process they move up with the call that gives the permits back.
func (l *Line) tells(g grant, ns []int64, now Local) bool {
	if !l.allCount(g, now.Add(freshFor)) { // by then the last have moved up
		return false
	}
	if l.untold == nil {
		l.untold = make([]untold, len(l.config))
	}
	tells := false
	for i, s := range l.config {
		u := &l.untold[i]
		if now.Sub(u.since) >= s.Span() {
			*u = untold{since: now}
		}
		u.n += ns[i]
		tells = tells || u.n >= (s.Rate+freeShare-1)/freeShare || s.PerPermit(u.n) >= freeTime
	}
	if tells {
		l.untold = nil
		l.freed(now)
	}
	return tells
}

// allCount reports whether each limit still counts the permits of a grant, as far as the line knows.
func (l *Line) allCount(g grant, now Local) bool {
	for _, s := range l.config {
		if now.Sub(g.due) >= s.Interval {
			return false
		}
	}
	return true
}
