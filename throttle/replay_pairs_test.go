package throttle

import (
	"testing"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
)

// manyFleets is from how many fleets on everything that can happen to a line has to have happened, pairsAtLeast times in each
// phase of it; and callsAtNight is how many calls the fleets of a night make.
const manyFleets, pairsAtLeast, callsAtNight = 2000, 100, 2_000_000

// phases are what Line.Phase returns.
var phases = []string{"closed", "in trouble", "calls", "holds back", "has reservations", "has a stock", "idle"}

// neverIn are the phases in which something cannot happen to a line, and why.
var neverIn = map[line.Kind]struct {
	phases []string
	why    string
}{
	line.Ready:    {phases[3:], "only who makes the calls asks for the next one"},
	line.Troubled: {phases[3:], "it is about the call that is under way"},
	line.Again:    {phases[3:], "it is about the call that is under way"},
	line.Beside:   {phases[3:], "it is beside a call that is under way"},
	line.Close:    {phases[:1], "a line is closed once"},
}

// rarely are pairs that can happen, and of which a run has fewer.
var rarely = map[string]string{
	"has reservations x Answered": besideLater, "holds back x Answered": besideLater, "has a stock x Answered": besideLater, "idle x Answered": besideLater,
	"closed x Beside":      besideFar,
	"in trouble x Beside":  besideFar,
	"has a stock x Extend": notHeld, "has a stock x Leave": notHeld,
}

const (
	besideLater = "a check beside a call is answered so long after the call that no other has begun, and none is under way"
	notHeld     = "its caller comes, or leaves, after the line let go of what it had reserved: else the line has a reservation"
	besideFar   = "Redis is far, a permit is due soon, and the call under way failed before, or its Client was closed"
)

// judgePairs checks that all that can happen to lines happened in all phases, again and again, and nothing else.
func judgePairs(t *testing.T, events map[string]int) {
	for kind := line.Arrive; kind <= line.Close; kind++ {
		never := make(map[string]bool)
		for _, phase := range neverIn[kind].phases {
			never[phase] = true
		}
		for _, phase := range phases {
			pair := phase + " x " + kind.String()
			switch n := events[pair]; {
			case never[phase] && n > 0:
				t.Errorf("%s happened %d times, and cannot: %s", pair, n, neverIn[kind].why)
			case !never[phase] && rarely[pair] == "" && n < pairsAtLeast:
				t.Errorf("%s happened %d times, want at least %d", pair, n, pairsAtLeast)
			}
			delete(events, pair)
		}
	}
	for pair, n := range events {
		t.Errorf("%s happened %d times: this phase is not in the list", pair, n)
	}
}
