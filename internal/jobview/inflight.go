package jobview

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// InFlightOverview is a limit in flight of the configuration.
type InFlightOverview struct {
	Name  string
	Slots int64    // as configured
	Key   string   // empty if there is one limit for all
	Jobs  []string // the patterns of jobs that need a slot of it
	// Parked is how many tasks are parked for a slot of it, and Lines is for how many values.
	// At most a thousand lines are read.
	Parked int64
	Lines  int64
	// Values has one element, or none if no job has needed a slot yet. For a limit with a key,
	// it has the values with the longest lines, at most MaxLimiters.
	Values []InFlightValue
}

// InFlightValue is a limit in flight in Redis.
type InFlightValue struct {
	operate.SlotUsage
	Parked int64
}

// inFlightOverview describes the limits in flight, with the lines of tasks that wait for their
// slots.
func (v *View) inFlightOverview(ctx context.Context, waits []line.BlockedPart) (all []InFlightOverview, err error) {
	parked := map[string]int64{}
	for _, w := range waits {
		if limiter, ok := line.SlotLimit(w.Name); ok {
			parked[limiter] += w.Tasks
		}
	}
	var names []string
	for _, l := range v.plans.Slots() {
		o := InFlightOverview{Name: l.Name, Slots: l.Slots.Limit, Key: l.Key}
		for _, j := range v.plans.All() {
			if slices.Contains(j.Slots, l) {
				o.Jobs = append(o.Jobs, j.Name)
			}
		}
		slices.Sort(o.Jobs)
		of := limitersOf(l, parked)
		for _, name := range of {
			o.Parked, o.Lines = o.Parked+parked[name], o.Lines+1
		}
		if l.Key == "" {
			of, o.Lines = []string{l.Name}, int64(len(of))
		}
		for _, name := range of[:min(len(of), MaxLimiters)] {
			o.Values = append(o.Values, InFlightValue{operate.SlotUsage{Name: name}, parked[name]})
			names = append(names, name)
		}
		all = append(all, o)
	}
	if len(names) == 0 {
		return all, nil
	}
	usages, err := v.inspector.fleet.InFlight(ctx, 0, names...)
	if usages == nil {
		return nil, err
	}
	n := 0 // a limit that cannot be read is shown without its usage, the others with it
	for i := range all {
		for k := range all[i].Values {
			all[i].Values[k].SlotUsage = usages[n]
			n++
		}
	}
	return all, nil
}

// limitersOf returns the limiters of a limit in flight for which tasks are parked, the longest
// lines first.
func limitersOf(l *plan.SlotLimit, parked map[string]int64) (names []string) {
	for name := range parked {
		if name == l.Name && l.Key == "" || l.Key != "" && strings.HasPrefix(name, l.Name+":") {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(parked[b], parked[a]), strings.Compare(a, b)) })
	return names
}
