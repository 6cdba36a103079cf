package throttle

import "time"

// maxDrift bounds how fast this process's monotonic clock and Redis's may part.
const maxDrift = 2000 // one part in so many

// serverClock places moments of Redis's clock on this process's monotonic
// one. Each reply says what Redis's clock showed at some moment between the
// sending and the receipt; what earlier replies say narrows that down to the
// quickest of the latest round trips. Only elapsed times take part.
type serverClock struct {
	known  bool
	now    int64     // us, as of the latest reply
	lo, hi time.Time // between which it showed that
}

// learn takes up a reply that showed now. A reply that contradicts what was
// known means that Redis's clock was set, or that another server answers.
func (c *serverClock) learn(now int64, sent, received time.Time) {
	if c.known {
		passed := time.Duration(now-c.now) * time.Microsecond
		drift := passed.Abs() / maxDrift
		lo, hi := c.lo.Add(passed-drift), c.hi.Add(passed+drift)
		if lo.Before(received) && hi.After(sent) {
			sent, received = later(sent, lo), earlier(received, hi)
		}
	}
	c.known, c.now, c.lo, c.hi = true, now, sent, received
}

// uncertainty is how well Redis's clock is known here: no better than the
// quickest round trip.
func (c *serverClock) uncertainty() time.Duration { return c.hi.Sub(c.lo) }

// least is what Redis's clock must show at the least when a call that is sent
// now arrives, in us; zero if nothing is known of it.
func (c *serverClock) least(now time.Time) int64 {
	if !c.known {
		return 0
	}
	passed := now.Sub(c.hi)
	return c.now + (passed - passed.Abs()/maxDrift).Microseconds()
}

// at is the stretch of time here in which Redis's clock shows t.
func (c *serverClock) at(t int64) (from, to time.Time) {
	d := time.Duration(t-c.now) * time.Microsecond
	return c.lo.Add(d), c.hi.Add(d)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
