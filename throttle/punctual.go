package throttle

import (
	"runtime"
	"sync/atomic"
	"time"
)

// timersLate is how late a timer fires at the most because timers are coarse.
// One that is later found no processor free, which waking earlier does not mend.
const timersLate = 1500 * time.Microsecond

// punctual knows how late timers fire. The runtime waits in whole milliseconds
// on some systems, which is most of the time for which a permit with a guard of
// a few milliseconds is fresh.
type punctual struct{ late atomic.Int64 } // ns, as of the latest timers

// fired takes up that a timer fired so late.
func (p *punctual) fired(late time.Duration) {
	if late < timersLate {
		old := p.late.Load()
		p.late.Store(max(int64(late), old-old/16))
	}
}

// early is how much sooner than at the due time a timer has to fire where
// being late by most is too late: nothing unless timers are about that late.
func (p *punctual) early(most time.Duration) time.Duration {
	if late := time.Duration(p.late.Load()); most < 2*late {
		return late
	}
	return 0
}

// yieldUntil waits for what a timer that was early has left.
func yieldUntil(t time.Time) {
	for time.Now().Before(t) {
		runtime.Gosched()
	}
}
