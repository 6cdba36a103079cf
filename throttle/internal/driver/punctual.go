package driver

import (
	"runtime"
	"sync/atomic"
	"time"
)

// timersLate is how late a timer fires at most because timers are coarse. One that is later
// found no processor free, and waking earlier does not help then.
const timersLate = 1500 * time.Microsecond

// punctual knows how late timers fire. The runtime waits in whole milliseconds on some
// systems. That is most of the time for which a permit with a guard of a few milliseconds is
// fresh.
type punctual struct{ ns atomic.Int64 } // as of the latest timers

func (p *punctual) late() time.Duration { return time.Duration(p.ns.Load()) }

// fired records how late a timer fired.
func (p *punctual) fired(late time.Duration) {
	if late < timersLate {
		old := p.ns.Load()
		p.ns.Store(max(int64(late), old-old/16))
	}
}

// yieldUntil waits for the rest of the time after a timer that fired early.
func yieldUntil(t time.Time) {
	for time.Now().Before(t) {
		runtime.Gosched()
	}
}
