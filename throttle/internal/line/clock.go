package line

import (
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// Local is a time of this process's monotonic clock, in ns. Zero is long ago, and stands for
// no time.
type Local int64

// Add returns the time d later.
func (t Local) Add(d time.Duration) Local { return t + Local(d) }

// Sub returns how much later t is than u.
func (t Local) Sub(u Local) time.Duration { return time.Duration(t - u) }

// Remote is a time of Redis's clock, in us.
type Remote = script.Remote

// maxDrift bounds how fast this process's monotonic clock and Redis's may drift apart.
const maxDrift = 2000 // one part in so many

// serverClock maps times of Redis's clock to times of this process's. Each reply says what
// Redis's clock showed at some time between sending and receipt. Earlier replies narrow that
// stretch down to about the quickest of the latest round trips. Only elapsed times are used.
type serverClock struct {
	known  bool
	now    Remote // as of the latest reply
	lo, hi Local  // between which it showed that
}

// learn records a reply that showed now. A reply that contradicts what was known means that
// Redis's clock was set, or that another server answers.
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

// uncertainty is how exactly Redis's clock is known here: to about the quickest round trip.
func (c *serverClock) uncertainty() time.Duration { return c.hi.Sub(c.lo) }

// least is what Redis's clock must show at least when a call that is sent now arrives; zero
// if nothing is known about it.
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

// at returns the stretch of this process's time in which Redis's clock shows t.
func (c *serverClock) at(t Remote) (from, to Local) {
	d := time.Duration(t-c.now) * time.Microsecond
	return c.lo.Add(d), c.hi.Add(d)
}
