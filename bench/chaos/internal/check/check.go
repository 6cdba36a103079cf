// Package check computes the results of a run from the record of the judge and from what was
// enqueued. It asks none of the processes that are judged.
package check

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/record"
)

// Limit is what the API allows: so many arrivals in any interval. The guard is the time that
// the limiter deliberately keeps free after each interval.
type Limit struct {
	Permits         int
	Interval, Guard time.Duration
}

// cycle is how long a permit counts.
func (l Limit) cycle() time.Duration { return l.Interval + l.Guard }

// Level is a number of permits that was in force for some time. The levels of a run overlap
// where it is uncertain which of two was in force.
type Level struct {
	Permits  int
	From, To time.Duration
}

// Phase is a fault and the calm after it.
type Phase struct {
	Fault            string
	Begin, End, Next time.Duration // Begin and End are of the fault; Next is when the next fault begins, or the end of the run
}

// Run is what happened.
type Run struct {
	Limit      Limit // in force when Levels say nothing else
	Levels     []Level
	Phases     []Phase
	Begin, End time.Duration // jobs were waiting all this time
	Arrivals   []record.Arrival
	Enqueued   []string        // ids of the jobs that were acknowledged
	Waiting    map[string]bool // those that the queues still had at the end
}

// Window is the busiest window of some time, compared with what was allowed in it.
type Window struct {
	Arrivals, Limit int
	Above           int // how many windows held more than allowed: one for each arrival too many
}

// Worse reports whether w held more than other, compared with what was allowed. Any window is
// worse than none.
func (w Window) Worse(other Window) bool {
	if w.Arrivals == 0 || other.Arrivals == 0 {
		return w.Arrivals > 0
	}
	return cmp.Or(cmp.Compare(w.Arrivals-w.Limit, other.Arrivals-other.Limit), cmp.Compare(w.Limit, other.Limit)) > 0
}

// Never is the time of something that should have happened and did not. Unknown is a time or a
// utilisation that the run was too short to measure.
const (
	Never   time.Duration = math.MaxInt64
	Unknown               = -1
)

// Figures are the results of a phase.
type Figures struct {
	Phase
	Busiest Window        // of the fault and the calm after it
	Twice   int           // arrivals of jobs that had arrived before
	Resumed time.Duration // from the end of the fault to the first arrival
	Back    time.Duration // from the end of the fault to the beginning of two cycles that are used to 95 %
	During  float64       // utilisation while the fault lasted
	After   float64       // utilisation for two cycles, from 5 s after the fault on
}

// Result is the result of a run.
type Result struct {
	Jobs    int // enqueued
	Phases  []Figures
	Busiest Window
	Lost    []string      // jobs that neither arrived nor are waiting
	Unasked []string      // jobs that arrived and were not enqueued
	Twice   int           // jobs that arrived more than once
	Idle    time.Duration // during which all permits were free, and jobs were waiting
	Use     float64       // utilisation from the begin to the end
}

// settled is how long after a fault everything should be as before.
const settled = 5 * time.Second

// Check computes the figures of a run.
func Check(r Run) Result {
	whole := Phase{Begin: 0, Next: Never}
	result := Result{
		Jobs:    len(r.Enqueued),
		Busiest: r.busiest(whole),
		Idle:    r.idle(),
		Use:     r.use(r.Begin, r.End),
	}
	result.Lost, result.Unasked, result.Twice = r.jobs()
	again := r.again()
	for _, p := range r.Phases {
		result.Phases = append(result.Phases, Figures{
			Phase:   p,
			Busiest: r.busiest(p),
			Twice:   count(again, p.Begin, p.Next),
			Resumed: r.resumed(p),
			Back:    r.back(p),
			During:  r.use(p.Begin, p.End),
			After:   r.after(p),
		})
	}
	return result
}

// busiest finds the busiest window of a phase. It checks the windows that end at an arrival.
// That is exact: any other window can be moved to the right until it ends at an arrival, and
// loses none.
func (r Run) busiest(p Phase) Window {
	var worst Window
	first := 0
	for i, a := range r.Arrivals {
		for a.At-r.Arrivals[first].At >= r.Limit.Interval {
			first++
		}
		if a.At < p.Begin || a.At >= p.Next {
			continue
		}
		w := Window{Arrivals: i - first + 1, Limit: r.allowed(a.At-r.Limit.Interval, a.At), Above: worst.Above}
		if w.Arrivals > w.Limit {
			w.Above++
		}
		if w.Worse(worst) {
			worst = w
		}
		worst.Above = w.Above
	}
	return worst
}

// allowed is the largest number of permits that was in force at any time of a window.
func (r Run) allowed(from, to time.Duration) int {
	most := 0
	for _, l := range r.Levels {
		if l.From <= to && l.To > from {
			most = max(most, l.Permits)
		}
	}
	if most == 0 {
		return r.Limit.Permits
	}
	return most
}

// idle is the time in which no earlier arrival counted any more. Then only a fault keeps the
// next job from arriving.
func (r Run) idle() (sum time.Duration) {
	last := r.Begin
	for _, a := range r.Arrivals {
		if a.At >= r.Begin && a.At < r.End {
			sum += max(0, a.At-last-r.Limit.cycle())
			last = a.At
		}
	}
	return sum + max(0, r.End-last-r.Limit.cycle())
}

// use is how much of what the limit allows arrived. If the time is no multiple of the cycle, it
// is inexact by a burst.
func (r Run) use(from, to time.Duration) float64 {
	ideal := float64(r.Limit.Permits) * float64(to-from) / float64(r.Limit.cycle())
	return float64(r.index(to)-r.index(from)) / ideal
}

// pace is the ratio of the least time that the limit allows for two cycles to the time that
// they took from arrival i on. Unlike use it is exact for bursts.
func (r Run) pace(i int) float64 {
	const cycles = 2
	n := cycles * r.Limit.Permits
	if i < 0 || i+n >= len(r.Arrivals) {
		return Unknown
	}
	return float64(cycles*r.Limit.cycle()) / float64(r.Arrivals[i+n].At-r.Arrivals[i].At)
}

// resumed is how long after the fault the first arrival came.
func (r Run) resumed(p Phase) time.Duration {
	i := r.index(p.End)
	if i == len(r.Arrivals) || r.Arrivals[i].At >= p.Next {
		return Never
	}
	return r.Arrivals[i].At - p.End
}

// back is how long after the fault two cycles begin that are used to 95 %.
func (r Run) back(p Phase) time.Duration {
	const enough = 0.95
	for i := r.index(p.End); i < len(r.Arrivals) && r.Arrivals[i].At < p.Next-2*r.Limit.cycle(); i++ {
		if r.pace(i) >= enough {
			return r.Arrivals[i].At - p.End
		}
	}
	if p.Next-p.End < settled+2*r.Limit.cycle() {
		return Unknown
	}
	return Never
}

// after is the pace 5 s after the fault, or the use if there is no pace.
func (r Run) after(p Phase) float64 {
	if p.Next-p.End < settled+2*r.Limit.cycle() {
		return Unknown
	}
	if pace := r.pace(r.index(p.End+settled) - 1); pace != Unknown {
		return pace
	}
	return r.use(p.End+settled, p.Next)
}

// jobs compares what was enqueued with what arrived and what is waiting.
func (r Run) jobs() (lost, unasked []string, twice int) {
	arrived := map[string]int{}
	for _, a := range r.Arrivals {
		arrived[a.Job]++
	}
	for _, id := range r.Enqueued {
		if arrived[id] == 0 && !r.Waiting[id] {
			lost = append(lost, id)
		}
		if arrived[id] > 1 {
			twice++
		}
		delete(arrived, id)
	}
	for id := range arrived {
		unasked = append(unasked, id)
	}
	slices.Sort(unasked)
	return lost, unasked, twice
}

// again are the arrivals of jobs that had arrived before.
func (r Run) again() []record.Arrival {
	seen := map[string]bool{}
	var again []record.Arrival
	for _, a := range r.Arrivals {
		if seen[a.Job] {
			again = append(again, a)
		}
		seen[a.Job] = true
	}
	return again
}

// index is the index of the first arrival at or after t.
func (r Run) index(t time.Duration) int { return index(r.Arrivals, t) }

func index(arrivals []record.Arrival, t time.Duration) int {
	return sort.Search(len(arrivals), func(i int) bool { return arrivals[i].At >= t })
}

// count is the number of arrivals from one time on, before another.
func count(arrivals []record.Arrival, from, to time.Duration) int {
	return index(arrivals, to) - index(arrivals, from)
}
