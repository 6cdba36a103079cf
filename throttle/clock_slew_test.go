package throttle

import (
	"fmt"
	"testing"
	"time"
)

// TestRedisClockRunsSlow: an NTP client that corrects Redis's clock makes it run slower for a while, by at most 500 parts in
// a million (ntpd) or a twelfth (chrony). That looks like a clock that is set back again and again. No interval has more than
// the limit, and what the clock's time allows is used.
func TestRedisClockRunsSlow(t *testing.T) {
	t.Parallel()
	const from, length = 2 * time.Second, 22 * time.Second
	smooth, kept := guarded("40/1s"), guarded("20/250ms")
	smooth.Smooth, kept.KeepAlive = true, 500*time.Millisecond
	for _, slow := range []float64{0.0005, 1. / 12} {
		for _, r := range []Rate{guarded("10/1s"), smooth, kept} {
			t.Run(fmt.Sprintf("by %v %v", slow, r), func(t *testing.T) {
				underFakeTime(t, func(b *bench) {
					clock := newSetClock(b)
					clock.slow = slow
					keepBusy(b, r, length, func(*Limiter) {}).expect(b, r, from, length-time.Duration(2*slow*float64(length)))
				})
			})
		}
	}
}
