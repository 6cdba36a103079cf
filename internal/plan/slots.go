package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/expr"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// SlotLimit is a limit in flight of the configuration: one, or one for each value of its key.
type SlotLimit struct {
	Name  string
	Slots throttle.Slots
	Key   string // where a task has the value; empty if there is one limit for all
	Dry   bool   // it only tells which tasks would wait

	key expr.Selector // Key
}

// String names the limit, and says how many run at a time.
func (l *SlotLimit) String() string {
	s := fmt.Sprintf("%s %d in flight", l.Name, l.Slots.Limit)
	if l.Key != "" {
		s += " per " + l.Key
	}
	if l.Dry {
		s += dryRun
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
	Mistake error  // of Plan.DrySlots: why the task would be blocked, a *Mistake; else nil
}

func newSlotLimit(name string, lc config.Limit) (l *SlotLimit, err error) {
	l = &SlotLimit{Name: name, Slots: lc.Slots(), Key: lc.Key, Dry: lc.DryRun}
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

// addSlots adds the slots that a task needs. An error is a *Mistake.
func (p *Plan) addSlots(t Task) (err error) {
	for _, l := range p.Job.Slots {
		limiter, mistake := limiterOf(l.Name, l.Key, l.key, t, p.Job)
		switch {
		case l.Dry:
			p.DrySlots = append(p.DrySlots, Slot{l, limiter, mistake})
		case mistake != nil:
			err = cmp.Or(err, mistake)
		default:
			p.Slots = append(p.Slots, Slot{Limit: l, Limiter: limiter})
		}
	}
	return err
}
