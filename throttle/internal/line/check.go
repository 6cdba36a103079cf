package line

import (
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

const (
	// freshFor is how long a client may act on the configuration it last saw:
	// changes stop waiters of every process within this time and a round trip.
	freshFor = 100 * time.Millisecond
	// pollShare spreads what waiting processes ask about the configuration:
	// together about one look in this time, each at most every pollTo. Those
	// that hear of changes look every pollHeard, in case they did not.
	pollShare = 30 * time.Millisecond
	pollTo    = 500 * time.Millisecond
	pollHeard = time.Second
)

// fresh is how long this line may act on the configuration it last saw.
func (l *Line) fresh() time.Duration { return max(freshFor, l.far) }

// look is a call that reads the epochs.
func (l *Line) check(now Local) *Call {
	names := make([]string, len(l.c.Members))
	for i, m := range l.c.Members {
		names[i] = m[0]
	}
	return &Call{Script: script.Epoch, keys: names, doubts: l.doubts, first: !l.Around.Answered, since: now}
}

// toCheck reports whether it is time to look at the configuration.
func (l *Line) toCheck(now Local) bool {
	if l.closed {
		return false
	}
	at, ok := l.checkAt(now)
	return ok && now >= at
}

// checkAt is when the configuration must be looked at: at once for a place
// that is due and unconfirmed, shortly before the next place that falls due
// more than freshFor after the last answer (the longer before, the longer a call
// takes at present), and now and then for waiters whose turn is far. Of the places
// that nobody has come for in time it finds none any more.
func (l *Line) checkAt(now Local) (Local, bool) {
	at, lead := l.heardAt.Add(l.pollEvery()), l.checkLead()
	for i := len(l.holders) - 1; i >= 0; i-- { // letGo moves the last
		w := l.holders[i]
		if w.state == unsure {
			return 0, true
		}
		if l.unclaimed(w, now) {
			l.letGo(w)
			continue
		}
		if before := w.grant.due.Add(-lead); before < at && w.grant.due.Sub(l.heardAt) >= l.fresh() {
			at = before
		}
	}
	return at, len(l.holders)+len(l.waiting)+len(l.front) > 0
}

// checkLead is how long before a place falls due the configuration is looked at.
func (l *Line) checkLead() time.Duration {
	return min(max(4*l.roundTrips.least(), 2*l.roundTrips.median(), 5*time.Millisecond), l.fresh()*9/10)
}

func (l *Line) pollEvery() time.Duration {
	if l.Around.Hears {
		return max(pollHeard, time.Duration(l.contenders)*pollShare/15)
	}
	return min(max(l.fresh(), time.Duration(l.contenders)*pollShare), pollTo)
}

// looked takes up what a look at the configuration told. If an epoch is not what the
// places were granted under, all of them are asked for again.
func (l *Line) checked(c *Call, r Reply, now Local) {
	if l.closed {
		return
	}
	l.failures, l.trouble = 0, nil
	if c.doubts != l.doubts || r.Sent < l.heardAt {
		return // more is known by now, or nothing for certain
	}
	at, epochs, err := script.DecodeEpochs(r.Value, len(l.config))
	if !c.first { // which connects
		l.roundTrips.add(now.Sub(r.Sent), now)
	}
	same := err == nil
	for i := range l.config {
		same = same && epochs[i] == l.config[i].Epoch
	}
	if !same {
		if err == nil {
			l.showed(at, r.Sent, now)
		}
		l.replace(now)
		l.askAt, l.heardAt = 0, r.Sent // what follows is a batch, which tells the rest
		return
	}
	l.heard(r.Sent, c.doubts)
	if time.Duration(l.clock.least(r.Sent)-at)*time.Microsecond >= l.span() {
		l.c.Clock.learn(at, r.Sent, now)
		// Redis's clock was set back. The places are further ahead than anybody
		// should wait: the next batch tells Redis so (mind_clock in upkeep.lua).
		l.replace(now)
		l.askAt = 0
		return
	}
	l.showed(at, r.Sent, now)
	l.confirm(r.Sent, now)
}

// lookFailed takes up a look that was not answered.
func (l *Line) checkFailed(r Reply, now Local) {
	if r.Final || !script.Transient(r.Err) { // the next batch tells everybody
		l.replace(now)
		l.askAt, l.heardAt = 0, r.Sent
		return
	}
	l.failed(nil, r.Err)
	l.out.After = l.backoff(l.failures)
	l.failures++
}

// heard takes up that a request was answered that was sent then, as of so many doubts.
func (l *Line) heard(asked Local, doubts uint64) {
	if doubts == l.doubts {
		l.heardAt = asked
	}
}

// confirm takes up that the configuration was still that of all places when a
// request was sent, and lets those go on who waited to know.
func (l *Line) confirm(sent, received Local) {
	for _, w := range l.holders {
		w.grant.confirm(sent, received, l.fresh())
		if w.state == unsure {
			w.state = granted
			l.answer(w, Answer{})
		}
	}
}

// replace asks for all places again, in the order of their turns. A change has
// dropped them from the log of the limiter that changed; the script takes them out
// of those of a group that did not. What is left of a stock is of no use either.
func (l *Line) replace(now Local) {
	l.stock.left = 0
	for _, w := range l.byDue() {
		if len(l.config) > 1 {
			l.returns = append(l.returns, returned{grant: w.grant, ns: w.ns, by: w})
		}
		l.again(w, now)
	}
}
