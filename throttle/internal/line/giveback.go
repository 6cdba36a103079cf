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

	told    int64    // the members of which those who wait are to hear of it, a bit for each
	release *Release // set if the permits were handed out; nil if they were not
	filled  Local    // when a stock had them, of which they are what is left; zero: they are not
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
	r.told = l.tells(r.grant, r.ns, now)
	l.returns = append(l.returns, r)
	later := func(w *Waiter) bool { return w.grant.at > r.grant.at }
	if r.told != 0 && slices.ContainsFunc(l.holders, later) { // in this process they move up with the call that gives it back
		l.freed(now)
	}
}

// tells returns the members, a bit for each, of which those who wait, in this and other processes, are to hear that permits
// go back which were not used: they came too late, or their caller left. What is reserved for later may leave no room for
// whoever asks next, so only those who wait already can have them: they move up, as after a release. That costs Redis more
// than anything else, so a few permits are not worth it.
func (l *Line) tells(g grant, ns []int64, now Local) (told int64) {
	if l.untold == nil {
		l.untold = make([]untold, len(l.config))
	}
	for i, s := range l.config {
		if now.Add(freshFor).Sub(g.due) >= s.Interval { // by the time that the last have moved up, it no longer counts
			continue
		}
		u := &l.untold[i]
		if now.Sub(u.since) >= s.Span() {
			*u = untold{since: now}
		}
		if u.n += ns[i]; u.n >= (s.Rate+freeShare-1)/freeShare || s.PerPermit(u.n) >= freeTime {
			*u = untold{since: now}
			told |= 1 << i
		}
	}
	return told
}

// announced reports whether the script announces what goes back, to whoever listens, and this process listens. Permits of
// one process alone are no news for others.
func (l *Line) announced(told int64) bool {
	for i, s := range l.config {
		if told&(1<<i) != 0 && s.PerClient {
			return false
		}
	}
	return l.Around.Hears
}
