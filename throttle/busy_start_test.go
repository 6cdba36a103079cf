package throttle

import (
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/oracle"
)

// TestBusyStartIsExact: processes that start on a busy machine have calls of 2 to 7 ms, more than half the guard. Redis is near
// all the same. So no window holds more than the limit, also of the permits that count as late.
func TestBusyStartIsExact(t *testing.T) {
	t.Parallel()
	sameFleets(t, "TestBusyStartIsExact", uint64(quarter(120)), func(t *testing.T, r *replayed) {
		r.length = 3 * time.Second
		r.startBusy()
		for _, p := range r.procs {
			for range 40 {
				r.after(0, (&steadyCaller{r: r, p: p}).next)
			}
		}
		r.until(r.begin.Add(r.length), always)
		var log oracle.Log
		for _, u := range r.uses {
			log = append(log, oracle.Entry{At: u.at.UnixMicro(), Permits: u.ns[0]})
		}
		r.end()
		limit := oracleLimit(r.limits[0].rate)
		if w, over := limit.Excess(log, limit.Interval); over {
			t.Errorf("%d permits from %v to %v after the beginning, of\n%s", w.Permits, micros(w.From-r.begin.UnixMicro()), micros(w.End-r.begin.UnixMicro()), r.describe())
		}
	})
}

// startBusy draws a limit with a short guard, and processes whose machine is busy when they start, for up to a second.
func (r *replayed) startBusy() {
	interval := []time.Duration{ms(50), ms(100), ms(250)}[r.random.IntN(3)]
	l := &simulatedLimit{name: "limit", rate: Rate{Interval: interval, Permits: 1 + r.random.Int64N(20)}}
	r.set(l)
	for range 1 + r.random.IntN(3) {
		r.addProcess(us(50)).busy = r.begin.Add(time.Duration(r.random.Int64N(int64(time.Second))))
	}
}
