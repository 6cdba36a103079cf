package throttle

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/httplimit"
)

// us is that many microseconds.
func us(n int) time.Duration { return time.Duration(n) * time.Microsecond }

// crew is processes whose callers come back at once, and all wait for one limit.
type crew struct {
	rate               string
	processes, waiters int
	roundTrip          time.Duration // which varies by up to half of it more, and 4ms
	length             time.Duration
	share              float64 // of the permits of whole bursts
}

func (f crew) String() string {
	return fmt.Sprintf("%s %dx%d %v", strings.ReplaceAll(f.rate, "/", " in "), f.processes, f.waiters, f.roundTrip)
}

// expect runs the processes, on a limit that the first of them makes, and checks
// that they use their share and never more than the limit.
func (f crew) expect(b *bench) {
	b.Helper()
	r := guarded(f.rate)
	var ls []httplimit.Acquirer
	for range f.processes {
		c := b.clientOf(&distant{Scripter: b.rdb, roundTrip: f.roundTrip, varies: min(f.roundTrip/2, ms(4))})
		ls = append(ls, must(c.LimiterWithRate(b.name(), r)))
	}
	ctx, cancel := context.WithTimeout(b.Context(), f.length)
	defer cancel()
	starts := used(ctx, f.processes*f.waiters, ls...)
	ideal, most := wholeBursts(r, f.length), busiest(starts, r.Interval)
	b.Logf("%d permits of %d, %d in the busiest %v", len(starts), ideal, most, r.Interval)
	if float64(len(starts)) < f.share*float64(ideal) {
		b.Errorf("%d permits of %d, want %.0f %%", len(starts), ideal, 100*f.share)
	}
	if int64(most) > r.Permits {
		b.Errorf("%d permits within %v", most, r.Interval)
	}
}

// Nearly all of a short limit is used, even if round trips take about as long as half its guard.
func TestShortIntervals(t *testing.T) {
	t.Parallel()
	crews := []crew{
		{"10/1ms", 4, 8, us(60), ms(300), 0.97},
		{"1/10ms", 4, 8, us(1000), 5 * time.Second, 0.97},
		{"5/250ms", 4, 8, us(1000), 20 * time.Second, 0.97},
		{"10/1ms", 4, 8, us(100), ms(300), 0.95},
		{"10/1ms", 4, 8, us(160), ms(300), 0.9},
		{"1/10ms", 4, 8, us(200), 5 * time.Second, 0.97},
		{"1/100ms", 4, 8, us(200), 20 * time.Second, 0.97},
		{"1/100ms", 4, 8, us(1000), 20 * time.Second, 0.97},
		{"5/250ms", 4, 8, us(200), 20 * time.Second, 0.97},
	}
	for _, f := range crews[:quarter(len(crews))] {
		t.Run(f.String(), func(t *testing.T) { underFakeTime(t, f.expect) })
	}
}

// Processes that start together use their limit's first interval.
func TestFirstInterval(t *testing.T) {
	t.Parallel()
	for _, rate := range []string{"1000/1s", "50/1s"} {
		for _, roundTrip := range []time.Duration{us(200), ms(2), us(4500), ms(6), ms(8), ms(12), ms(20), ms(50)} {
			for processes, waiters := range map[int]int{8: 64, 2: 100} {
				f := crew{rate, processes, waiters, roundTrip, time.Second, 0.95}
				t.Run(f.String(), func(t *testing.T) { underFakeTime(t, f.expect) })
			}
		}
	}
}
