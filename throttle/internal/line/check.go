package line

import (
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

const (
	// freshFor is how long a client may act on the configuration it last saw: a change stops
	// the waiters of every process within this time and a round trip.
	freshFor = 100 * time.Millisecond
	// pollShare spreads the checks of waiting processes: together they make about one check
	// in this time, but each makes one every pollTo at least. Those that hear of changes
	// check every pollHeard, or less often if they are many, in case they did not hear.
	pollShare = 30 * time.Millisecond
	pollTo    = 500 * time.Millisecond
	pollHeard = time.Second
)

// fresh is how long this line may act on the configuration it last saw.
func (l *Line) fresh() time.Duration { return max(freshFor, l.far) }

// freshOf is how long this line may act, for this grant, on the configuration it last saw. Where Redis is far, that is
// longer for a grant of the past, even if Redis has not been told so yet: a change does not drop such a grant.
func (l *Line) freshOf(p *grant) time.Duration {
	if p.ahead {
		return l.fresh()
	}
	return max(l.fresh(), l.wayThere())
}

// check returns a call that reads the epochs.
func (l *Line) check(now Local) *Call {
	names := make([]string, len(l.c.Members))
	for i, m := range l.c.Members {
		names[i] = m[0]
	}
	return &Call{Script: script.Epoch, keys: names, doubts: l.doubts, first: !l.Around.Answered, since: now}
}

// toCheck reports whether it is time to check the configuration.
func (l *Line) toCheck(now Local) bool {
	if l.closed {
		return false
	}
	at, ok := l.checkAt(now)
	return ok && now >= at
}

// checkAt is when the configuration must be checked:
//   - at once for a grant that is due and unconfirmed,
//   - shortly before the next grant that is due at least freshOf after the last answer: the
//     longer calls take at present, the earlier,
//   - from time to time for waiters who have long to wait.
//
// checkAt also lets go of reservations whose callers have not come in time.
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
		if before := w.grant.due.Add(-lead); before < at && w.grant.due.Sub(l.heardAt) >= l.freshOf(&w.grant) {
			at = before
		}
	}
	return at, len(l.holders)+len(l.waiting)+len(l.front) > 0
}

// checkLead is how long before a grant is due the configuration is checked.
func (l *Line) checkLead() time.Duration {
	return min(max(4*l.roundTrips.least(), 2*l.roundTrips.median(), 5*time.Millisecond), l.fresh()*9/10)
}

func (l *Line) pollEvery() time.Duration {
	if l.Around.Hears {
		return max(pollHeard, time.Duration(l.contenders)*pollShare/15)
	}
	return min(max(l.fresh(), l.wayThere(), time.Duration(l.contenders)*pollShare), pollTo)
}

// checked handles the result of a check. If an epoch is not the one that the grants were made
// under, all of them are asked for again.
func (l *Line) checked(c *Call, r Reply, now Local) {
	if l.closed {
		return
	}
	l.failures, l.trouble = 0, nil
	if c.doubts != l.doubts || r.Sent < l.heardAt {
		return // more is known by now, or nothing for certain
	}
	at, epochs, err := script.DecodeEpochs(r.Value, len(l.config))
	if !c.first { // the first call also connects
		if l.measuring > 0 && l.roundTrips.n == 0 && err == nil {
			l.countFirst(at, r.Sent, now)
		}
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
		l.askAt, l.heardAt = 0, r.Sent // a batch follows, and its reply says the rest
		return
	}
	l.heard(r.Sent, c.doubts)
	if time.Duration(l.clock.least(r.Sent)-at)*time.Microsecond >= l.Span() {
		l.c.Clock.learn(at, r.Sent, now)
		// Redis's clock was set back. The grants are further ahead than anybody should wait.
		// The next batch tells Redis of it (mind_clock in upkeep.lua).
		l.replace(now)
		l.askAt = 0
		return
	}
	l.showed(at, r.Sent, now)
	l.confirm(r.Sent, now)
}

// checkFailed handles a check that was not answered.
func (l *Line) checkFailed(r Reply, now Local) {
	if r.Final || !script.Transient(r.Err) { // the next batch tells everybody
		l.replace(now)
		l.askAt, l.heardAt = 0, r.Sent
		return
	}
	l.failed(nil, r.Err, now)
	l.out.After = l.backoff(l.failures)
	l.failures++
}

// heard records that a request was answered that was sent at the time asked, after so many
// doubts.
func (l *Line) heard(asked Local, doubts uint64) {
	if doubts == l.doubts {
		l.heardAt = asked
	}
}

// confirm records that the configuration was still that of all grants when a request was
// sent, and answers those who waited to know.
func (l *Line) confirm(sent, received Local) {
	for _, w := range l.holders {
		w.grant.confirm(sent, received, l.fresh())
		if w.state == unsure {
			w.state = granted
			l.answer(w, Answer{})
		}
	}
}

// replace asks again for all grants, in the order in which they are due. A change has dropped
// them from the log of the limiter that changed. In a group, the script also takes them out
// of the logs of the limiters that did not change. What is left of a stock cannot be used
// either: its permits are of the past, which changes do not drop, so they go back.
func (l *Line) replace(now Local) {
	l.returnStock()
	l.forgetHeld()
	for _, w := range l.byDue() {
		if len(l.config) > 1 {
			l.returns = append(l.returns, returned{grant: w.grant, ns: w.ns, by: w})
		}
		l.again(w, now)
	}
}
