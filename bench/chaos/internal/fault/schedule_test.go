//go:build unix

package fault

import (
	"testing"
	"time"
)

// shape is the part of a slot that can be compared.
type shape struct {
	at      time.Duration
	name    string
	changes bool
	seed    uint64
}

func shapes(slots []Slot) []shape {
	var s []shape
	for _, slot := range slots {
		s = append(s, shape{slot.At, slot.Fault.Name, slot.Changes, slot.Seed})
	}
	return s
}

// TestScheduleIsReproducible: the same seed, the same schedule; a longer run begins as a shorter one.
func TestScheduleIsReproducible(t *testing.T) {
	differ := false
	for seed := range uint64(20) {
		first, again := shapes(Schedule(seed, 5*time.Minute, Mix())), shapes(Schedule(seed, 5*time.Minute, Mix()))
		short := shapes(Schedule(seed, time.Minute, Mix()))
		other := shapes(Schedule(seed+1, time.Minute, Mix()))
		if len(short) != 5 || len(first) < 20 {
			t.Fatalf("seed %d: %d faults in a minute and %d in five, want 5 and more than 20", seed, len(short), len(first))
		}
		for i := range first {
			if first[i] != again[i] || i < len(short) && first[i] != short[i] {
				t.Errorf("seed %d: slot %d is %v, then %v", seed, i, first[i], again[i])
			}
		}
		for i := range short {
			differ = differ || short[i] != other[i]
		}
	}
	if !differ {
		t.Error("all seeds have the same schedule")
	}
}

func TestSchedule(t *testing.T) {
	slots := Schedule(1, time.Duration(len(Mix()))*(Length+Calm)+LeadIn, Mix())
	seen := map[string]int{}
	changes := 0
	for i, slot := range slots {
		seen[slot.Fault.Name]++
		if want := LeadIn + time.Duration(i)*(Length+Calm); slot.At != want {
			t.Errorf("slot %d begins at %v, want %v", i, slot.At, want)
		}
		if slot.Changes {
			changes++
		}
		if slot.Changes && slot.Fault.Name == Limits {
			t.Error("the limit is changed by two at a time")
		}
	}
	for _, f := range Mix() {
		if seen[f.Name] != 1 {
			t.Errorf("%s comes %d times, want once", f.Name, seen[f.Name])
		}
		if f.Exempt {
			t.Errorf("%s is in the mix", f.Name)
		}
	}
	if changes == 0 {
		t.Error("the limit is never changed during another fault")
	}
	for _, slot := range Schedule(1, time.Minute, All()[:1]) {
		if slot.Changes {
			t.Error("a fault that is to be alone is not")
		}
	}
	for length, want := range map[time.Duration]int{LeadIn + Length: 0, 10 * time.Second: 1, 20 * time.Second: 2} {
		if got := len(Schedule(1, length, Mix())); got != want {
			t.Errorf("%d faults in %v, want %d", got, length, want)
		}
	}
}
