//go:build unix

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/check"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/fault"
)

// describe says what a schedule has: when, and what; + means that the limit also changes.
func describe(slots []fault.Slot) string {
	var parts []string
	for _, slot := range slots {
		name := slot.Fault.Name
		if slot.Changes {
			name += "+"
		}
		parts = append(parts, fmt.Sprintf("%v %s", slot.At, name))
	}
	return strings.Join(parts, ", ")
}

// summary is a run in a few words.
func summary(r check.Result) string {
	return fmt.Sprintf("busiest %s, %d lost, %d twice, idle %s, %s used",
		window(r.Busiest), len(r.Lost), r.Twice, seconds(r.Idle), percent(r.Use))
}

// some are the first of many names.
func some(names []string) string {
	const most = 5
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", ..."
	}
	return strings.Join(names, ", ")
}

func window(w check.Window) string { return fmt.Sprintf("%d of %d", w.Arrivals, w.Limit) }

func seconds(d time.Duration) string {
	if d == check.Never {
		return "never"
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

func percent(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) }

// times shows a median and the longest time.
func times(all []time.Duration) string {
	all = known(all)
	if len(all) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s)", seconds(median(all)), seconds(slices.Max(all)))
}

// uses shows a median and the least.
func uses(all []float64) string {
	all = known(all)
	if len(all) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s)", percent(median(all)), percent(slices.Min(all)))
}

// known are the values that a run was long enough to measure, ascending.
func known[T time.Duration | float64](values []T) []T {
	values = slices.DeleteFunc(slices.Clone(values), func(v T) bool { return v == check.Unknown })
	slices.Sort(values)
	return values
}

func median[T time.Duration | float64](ascending []T) T { return ascending[(len(ascending)-1)/2] }
