//go:build linux

package throttle_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// BenchmarkShare prints how much of a limit is used by processes whose callers come back at once, in its
// first interval and overall, of what interval and guard allow:
//
//	go test -run - -bench Share -benchtime 3x ./throttle
func BenchmarkShare(b *testing.B) {
	for _, f := range []fleet{
		{rate: throttle.Rate{Permits: 10, Interval: time.Millisecond, Guard: 250 * time.Microsecond}, clients: 4, goroutines: 8},
		{rate: throttle.Rate{Permits: 1, Interval: 10 * time.Millisecond, Guard: 2500 * time.Microsecond}, clients: 4, goroutines: 8},
		{rate: throttle.Rate{Permits: 1, Interval: 100 * time.Millisecond, Guard: 3 * time.Millisecond}, clients: 4, goroutines: 8, length: 6 * time.Second},
		{rate: throttle.Rate{Permits: 5, Interval: 250 * time.Millisecond, Guard: 3 * time.Millisecond}, clients: 4, goroutines: 8, length: 6 * time.Second},
		{rate: throttle.Rate{Permits: 1000, Interval: time.Second, Guard: 10 * time.Millisecond}, clients: 8, goroutines: 64},
		{rate: throttle.Rate{Permits: 50, Interval: time.Second, Guard: 10 * time.Millisecond}, clients: 8, goroutines: 64},
		{rate: throttle.Rate{Permits: 1000, Interval: time.Second, Guard: 10 * time.Millisecond}, clients: 2, goroutines: 100},
	} {
		b.Run(strings.ReplaceAll(f.rate.String(), "/", "per"), func(b *testing.B) {
			if f.length == 0 {
				f.length = 3 * time.Second
			}
			var first, all, calls, stale, late float64
			for b.Loop() {
				o, _ := fleetOfProcesses{fleet: f}.run(b, redistest.Start(b))
				begun := 0
				for _, u := range o.uses {
					if u.at < f.rate.Interval {
						begun++
					}
				}
				first += float64(begun) / float64(f.rate.Permits)
				all += o.used(f.rate, f.rate.Guard)
				calls += float64(o.calls) / float64(o.permits())
				stale += float64(o.stale) / float64(o.permits())
				late += float64(o.late) / float64(o.permits())
				if most := o.busiest(f.rate.Interval); most > f.rate.Permits {
					b.Logf("%d permits within %v", most, f.rate.Interval)
				}
			}
			n := float64(b.N)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(100*first/n, "%first")
			b.ReportMetric(100*all/n, "%used")
			b.ReportMetric(calls/n, "calls/permit")
			b.ReportMetric(stale/n, "stale/permit")
			b.ReportMetric(late/n, "late/permit")
		})
	}
}
