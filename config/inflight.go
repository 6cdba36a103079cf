package config

import (
	"fmt"
	"strconv"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// SlotCount is how many jobs a limit in flight lets run at a time. It is zero for a limit with
// a rate.
type SlotCount int

// UnmarshalYAML reads a number of slots.
func (n *SlotCount) UnmarshalYAML(node ast.Node) error {
	number := scalarText(node)
	count, err := strconv.Atoi(number)
	if err != nil || !decimal.MatchString(number) || (throttle.Slots{Limit: int64(count)}).Validate() != nil {
		return &yaml.SyntaxError{Message: fmt.Sprintf("invalid number %q: want 1 to 1000000 jobs that run at a time", node.GetToken().Value), Token: node.GetToken()}
	}
	*n = SlotCount(count)
	return nil
}

// IsInFlight reports whether the limit limits how many jobs run at a time, instead of a rate.
func (l Limit) IsInFlight() bool { return l.InFlight != 0 }

// Slots returns the [throttle.Slots] of a limit in flight.
func (l Limit) Slots() throttle.Slots {
	return throttle.Slots{Limit: int64(l.InFlight), Lease: time.Duration(l.Lease)}
}

// checkInFlight refuses settings that a limit in flight cannot have, and leases without one.
func (l Limit) checkInFlight(key string) error {
	if !l.IsInFlight() {
		if l.Lease != 0 {
			return invalid(key+".lease", "needs in_flight: a rate has no leases")
		}
		return nil
	}
	for _, other := range []struct {
		name string
		has  bool
	}{
		{"rate", l.Rate != ""}, {"type", l.Type != ""}, {"rates", l.Rates != nil}, {"guard", l.Guard != 0}, {"smooth", l.Smooth},
		{"window", l.Window != ""}, {"offset", l.Offset != 0}, {"keep_alive", l.KeepAlive != 0},
		{"share", l.Share != ""}, {"weights", l.Weights != nil}, {"default_weight", l.DefaultWeight != nil},
		{"adapt", l.Adapt != nil}, {"preset", l.Preset != ""},
	} {
		if other.has {
			return invalid(key+"."+other.name, "does not go with in_flight: make it another limit, and name both in the job's limits")
		}
	}
	if l.Lease != 0 && time.Duration(l.Lease) < 3*time.Second {
		return invalid(key+".lease", "invalid duration %v: want 3s or more", l.Lease)
	}
	if err := l.Slots().Validate(); err != nil {
		if l.InFlight < 1 {
			return invalid(key+".in_flight", "invalid number %d: want 1 to 1000000 jobs that run at a time", l.InFlight)
		}
		return invalid(key+".lease", "invalid duration %v: want 3s to 24h, in whole milliseconds", l.Lease)
	}
	return nil
}
