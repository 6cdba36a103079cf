package driver

import (
	"runtime"
	"sync/atomic"
	"time"
)

// timersLate is how late a timer fires at most because timers are coarse.
// One that is later found no processor free, which waking earlier does not mend.
const timersLate = 1500 * time.Microsecond

// punctual knows how late timers fire. The runtime waits in whole milliseconds
// on some systems, which is most of the time for which a permit with a guard of
// a few milliseconds is fresh.
type punctual struct{ ns atomic.Int64 } // as of the latest timers

func (p *punctual) late() time.Duration { return time.Duration(p.ns.Load()) }

// fired takes up that a timer fired so late.
func (p *punctual) fired(late time.Duration) {
	if late < timersLate {
		old := p.ns.Load()
		p.ns.Store(max(int64(late), old-old/16))
	}
}

// yieldUntil waits for what a timer that was early has left.
func yieldUntil(t time.Time) {
	for time.Now().Before(t) {
		runtime.Gosched()
	}
}
