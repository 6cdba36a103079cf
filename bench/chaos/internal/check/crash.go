package check

import (
	"math"
	"time"
)

// Crash is the cost of the death of a worker whose slots all had reservations: permits that
// nobody used while the reservations lasted, and for as long again after that.
type Crash struct{ Unused, Later int }

// CheckCrash computes the cost of a death at a time. The limit has to spread its permits
// evenly, so that each unused permit leaves a gap. Reservations reach as far as horizon.
func CheckCrash(r Run, died, horizon time.Duration) Crash {
	return Crash{
		Unused: r.unused(died, died+horizon),
		Later:  r.unused(died+horizon, died+2*horizon),
	}
}

// unused is how many more permits than arrivals there were between the last arrival before from
// and the first after to.
func (r Run) unused(from, to time.Duration) int {
	first, last := max(r.index(from)-1, 0), min(r.index(to), len(r.Arrivals)-1)
	if last <= first {
		return r.Limit.Permits
	}
	every := float64(r.Limit.cycle()) / float64(r.Limit.Permits)
	permits := math.Round(float64(r.Arrivals[last].At-r.Arrivals[first].At) / every)
	return max(int(permits)-(last-first), 0)
}
