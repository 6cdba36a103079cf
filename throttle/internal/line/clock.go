package line

import (
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// Local is a moment of this process's monotonic clock, in ns. Zero is long ago,
// and stands for none.
type Local int64

// Add is the moment d later.
func (t Local) Add(d time.Duration) Local { return t + Local(d) }

// Sub is how much later t is than u.
func (t Local) Sub(u Local) time.Duration { return time.Duration(t - u) }

// Remote is a moment of Redis's clock, in us.
type Remote = script.Remote

// maxDrift bounds how fast this process's monotonic clock and Redis's may part.
const maxDrift = 2000 // one part in so many

// serverClock places moments of Redis's clock on this process's. Each reply says
// what Redis's clock showed at some moment between the sending and the receipt;
// what earlier replies say narrows that down to the quickest of the latest round
// trips. Only elapsed times take part.
type serverClock struct {
	known  bool
	now    Remote // as of the latest reply
	lo, hi Local  // between which it showed that
}

// learn takes up a reply that showed now. A reply that contradicts what was
// known means that Redis's clock was set, or that another server answers.
func (c *serverClock) learn(now Remote, sent, received Local) {
	if c.known {
		passed := time.Duration(now-c.now) * time.Microsecond
		drift := passed.Abs() / maxDrift
		lo, hi := c.lo.Add(passed-drift), c.hi.Add(passed+drift)
		if lo < received && hi > sent {
			sent, received = max(sent, lo), min(received, hi)
		}
	}
	c.known, c.now, c.lo, c.hi = true, now, sent, received
}

// uncertainty is how well Redis's clock is known here: no better than the
// quickest round trip.
func (c *serverClock) uncertainty() time.Duration { return c.hi.Sub(c.lo) }

// least is what Redis's clock must show at least when a call that is sent
// now arrives; zero if nothing is known of it.
func (c *serverClock) least(now Local) Remote {
	if !c.known {
		return 0
	}
	passed := now.Sub(c.hi)
	return c.now + Remote((passed - passed.Abs()/maxDrift).Microseconds())
}

// most is what Redis's clock shows at most when a reply is received now.
func (c *serverClock) most(now Local) Remote {
	passed := now.Sub(c.lo)
	return c.now + Remote((passed + passed.Abs()/maxDrift).Microseconds())
}

// at is the stretch of time here in which Redis's clock shows t.
func (c *serverClock) at(t Remote) (from, to Local) {
	d := time.Duration(t-c.now) * time.Microsecond
	return c.lo.Add(d), c.hi.Add(d)
}
