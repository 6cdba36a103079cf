//go:build unix

package fault

import (
	"math/rand/v2"
	"time"
)

const (
	// LeadIn is how long a run goes on before the first fault.
	LeadIn = 3 * time.Second
	// Length is how long a fault lasts.
	Length = 3 * time.Second
	// Calm is how long nothing happens after it: 5 s until everything has to be as before, and
	// 3 s in which to see that.
	Calm = 8 * time.Second
	// leastCalm is how much calm the last fault of a run needs: jobs have to run again by then.
	leastCalm = 3 * time.Second
)

// Slot is when a fault happens.
type Slot struct {
	At      time.Duration // since the beginning of the run
	Fault   Fault
	Changes bool   // the limit is changed and paused meanwhile
	Seed    uint64 // for what the fault does at random
}

// Schedule is what happens in a run: faults and calm alternate. The order depends only on the
// seed. No fault comes a second time before all others have come. In a mix, the limit also
// changes during about every third fault.
func Schedule(seed uint64, length time.Duration, faults []Fault) []Slot {
	r := rand.New(rand.NewPCG(seed, 0))
	var slots []Slot
	var deck []int
	for at := LeadIn; at+Length+leastCalm <= length; at += Length + Calm {
		if len(deck) == 0 {
			deck = r.Perm(len(faults))
		}
		f := faults[deck[0]]
		deck = deck[1:]
		changes := r.IntN(3) == 0 && len(faults) > 1 && f.Name != Limits
		slots = append(slots, Slot{At: at, Fault: f, Changes: changes, Seed: r.Uint64()})
	}
	return slots
}
