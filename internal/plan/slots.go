package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/expr"
	"github.com/jobthrottle/jobthrottle/internal/limitname"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// SlotLimit is a limit in flight of the configuration: one, or one for each value of its key.
type SlotLimit struct {
	Name  string
	Slots throttle.Slots
	Key   string // where a task has the value; empty if there is one limit for all

	key expr.Selector // Key
}

// String names the limit, and says how many run at a time.
func (l *SlotLimit) String() string {
	s := fmt.Sprintf("%s %d in flight", l.Name, l.Slots.Limit)
	if l.Key != "" {
		s += " per " + l.Key
	}
	return s
}

// Has reports whether a limit in flight in Redis is this one, or the one of a value of its key.
func (l *SlotLimit) Has(limiter string) bool {
	if l.Key == "" {
		return limiter == l.Name
	}
	return strings.HasPrefix(limiter, l.Name+":") // limitname.OfValue
}

// Slot is what a task holds of a limit in flight while it runs.
type Slot struct {
	Limit   *SlotLimit
	Limiter string // the limit's own name, or that of the task's value of its key
}

func newSlotLimit(name string, lc config.Limit) (l *SlotLimit, err error) {
	l = &SlotLimit{Name: name, Slots: lc.Slots(), Key: lc.Key}
	if l.Key != "" {
		l.key, err = expr.ParseSelector(l.Key)
	}
	return l, err
}

// splitSlots returns the limits in flight among the limits of a job, and the names of
// the others.
func splitSlots(names []string, all []*SlotLimit) (own []*SlotLimit, rates []string) {
	for _, name := range names {
		i := slices.IndexFunc(all, func(l *SlotLimit) bool { return l.Name == name })
		if i < 0 {
			rates = append(rates, name)
		} else {
			own = append(own, all[i])
		}
	}
	return own, rates
}

// Slots returns the limits in flight by name.
func (js *Jobs) Slots() []*SlotLimit { return js.slots }

// slotsOf returns the slots that a task needs. An error is a *Mistake.
func (j *Job) slotsOf(t Task) (slots []Slot, err error) {
	for _, l := range j.Slots {
		name := l.Name
		if l.Key != "" {
			value, wrong := l.key.Pick(t)
			if wrong == nil {
				name, wrong = limitname.OfValue(l.Name, value)
			} else {
				wrong = fmt.Errorf("limit %q: %w", l.Name, wrong)
			}
			if wrong != nil {
				if err == nil {
					err = &Mistake{Reason: BadKey, Type: t.Type, Job: j.Name, Limit: l.Name, Path: l.Key, Err: wrong}
				}
				continue
			}
		}
		slots = append(slots, Slot{l, name})
	}
	return slots, err
}
