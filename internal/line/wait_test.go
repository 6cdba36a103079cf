package line

import (
	"testing"
	"time"
)

// TestInLine: how long a task was in line, or in its queue after its process had ended, is known when it is
// taken. How long it was elsewhere is not.
func TestInLine(t *testing.T) {
	const taken = 1_000_000_000_000_000 // us
	before := func(d time.Duration) int64 { return taken/1000 - d.Milliseconds() }
	for _, c := range []struct {
		name string
		wait Wait
		want time.Duration
	}{
		{"it never waited", Wait{}, 0},
		{"parked", Wait{State: Parked, Soonest: before(10*time.Second - Settled)}, 10 * time.Second},
		{"called", Wait{State: Called, Soonest: before(10*time.Second - Settled)}, 10 * time.Second},
		{"back", Wait{State: Back, Soonest: before(time.Hour)}, time.Hour},
		{"back, untried", Wait{State: Untried, Soonest: before(time.Hour)}, time.Hour},
		{"back, by a version that did not say when", Wait{State: Back}, 0},
		{"it has run since", Wait{State: Arrived, Soonest: before(time.Hour)}, 0},
		{"the clock was set back", Wait{State: Back, Soonest: before(-time.Hour)}, 0},
	} {
		if got := c.wait.InLine(taken); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestBackSince: a task that goes back to its queue says since when it is there.
func TestBackSince(t *testing.T) {
	onBothServers(t, func(c crowd) {
		c.park("a", 1, 1)
		c.bring(Visit{Line: OfTenant("api", "a"), Permits: 1, Weight: 1})
		ends := time.Now().Add(time.Minute).Unix()
		taken, err := c.lines.Take(c.t.Context(), "default", ends, 1, false)
		if err != nil || len(taken) != 1 {
			c.t.Fatalf("took %v, %v", taken, err)
		}
		if err := c.lines.GiveBack(c.t.Context(), "default", taken[0].ID, Parking{By: taken[0].By, Since: taken[0].Wait.Since, Cost: 1, Refused: 7, Line: taken[0].Wait.Line}); err != nil {
			c.t.Fatal(err)
		}
		again, err := c.lines.Take(c.t.Context(), "default", ends, 1, false)
		if err != nil || len(again) != 1 {
			c.t.Fatalf("took %v, %v", again, err)
		}
		w := again[0].Wait
		if now := time.UnixMicro(again[0].At); w.State != Back || w.Refused != 7 || now.Sub(time.UnixMilli(w.Soonest)).Abs() > 10*time.Second {
			c.t.Errorf("it comes back as %+v at %v", w, now)
		}
	})
}
