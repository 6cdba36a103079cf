package asynqlimit

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// What Stats returns. Package internal/jobview defines it, because it shows it:
//
//	go doc github.com/jobthrottle/jobthrottle/internal/jobview.Stats
//
// prints the fields.
type (
	// Stats counts what the jobs of this process did. The numbers only grow, except
	// Throttle.Waiting. Limiters of one keyed limit count together: there is an entry for each
	// limit and job of the configuration, whatever values the jobs bring.
	Stats = jobview.Stats
	// LimitStats counts for one limit of the configuration.
	LimitStats = jobview.LimitStats
	// SlotStats counts for one limit in flight of the configuration.
	SlotStats = jobview.SlotStats
	// JobStats counts the attempts of one pattern's jobs.
	JobStats = jobview.JobStats
	// Refused is a call that Redis refused.
	Refused = jobview.Refused
	// Waits is a histogram of durations.
	Waits = jobview.Waits
)

// OtherJobs is the name in Stats for jobs that the configuration does not know.
const OtherJobs = jobview.OtherJobs

// WaitBounds are the bounds of the buckets of Waits.
var WaitBounds = jobview.WaitBounds

type limitCounts struct {
	granted, returned, denied, parked, paused, wouldWait atomic.Int64
}

type jobCounts struct {
	done, failed, putOff, blocked atomic.Int64
	waits, wholeWaits, handlers   durations
}

// durations are the counters of a Waits.
type durations struct {
	sum     atomic.Int64                      // nanoseconds
	buckets [len(WaitBounds) + 1]atomic.Int64 // durations beyond the last bound are in the last bucket
}

func (ds *durations) add(d time.Duration) {
	i, _ := slices.BinarySearch(WaitBounds[:], d)
	ds.buckets[i].Add(1)
	ds.sum.Add(int64(d))
}

func (ds *durations) stats() Waits {
	w := Waits{Sum: time.Duration(ds.sum.Load())}
	for i := range ds.buckets {
		w.Count += ds.buckets[i].Load()
		if i < len(w.Buckets) {
			w.Buckets[i] = w.Count
		}
	}
	return w
}

// Stats returns the counters as they are now.
func (l *Limits) Stats() Stats { return l.stats() }

func (p *process) stats() Stats {
	s := Stats{Throttle: p.throttle.Stats()}
	for _, limit := range p.rules.plan.Limits() {
		c := &p.rules.limits[limit].counts
		s.Limits = append(s.Limits, LimitStats{
			Name:    limit.Name,
			Granted: c.granted.Load(), Returned: c.returned.Load(), Denied: c.denied.Load(), Parked: c.parked.Load(), Paused: c.paused.Load(),
			DryRun: limit.Dry, WouldWait: c.wouldWait.Load(),
		})
	}
	for _, limit := range p.rules.plan.Slots() {
		c := &p.rules.slots[limit].counts
		s.Slots = append(s.Slots, SlotStats{
			Name: limit.Name, Held: c.held.Load(), Running: c.running.Load(), Parked: c.parked.Load(), Lost: c.lost.Load(), Outlived: c.outlived.Load(),
			DryRun: limit.Dry, WouldWait: c.wouldWait.Load(),
		})
	}
	for _, r := range p.rules.all {
		s.Jobs = append(s.Jobs, r.counts.stats(r.Name))
	}
	slices.SortFunc(s.Jobs, func(a, b JobStats) int { return strings.Compare(a.Name, b.Name) })
	s.Jobs = append(s.Jobs, p.others.stats(OtherJobs))
	s.Refused = jobview.PermitsRefused(s.Throttle).Later(p.events.passRefused.Load())
	return s
}

func (c *jobCounts) stats(name string) JobStats {
	return JobStats{
		Name: name, Done: c.done.Load(), Failed: c.failed.Load(), PutOff: c.putOff.Load(), Blocked: c.blocked.Load(),
		Waits: c.waits.stats(), WholeWaits: c.wholeWaits.stats(), Handlers: c.handlers.stats(),
	}
}

func (c *jobCounts) attempt(err error) {
	switch {
	case err == nil:
		c.done.Add(1)
	case errors.Is(err, errGone):
	case asBlocked(err) != nil:
		c.blocked.Add(1)
	case isPutOff(err):
		c.putOff.Add(1)
	default:
		c.failed.Add(1)
	}
}

// counts returns the counters for the task's pattern.
func (j *job) counts() *jobCounts {
	if r := j.l.rules.forType(j.task.Type()); r != nil {
		return &r.counts
	}
	return &j.l.others
}

// ran counts a run of the handler. If the handler had to wait when it asked for its permits, or
// could not ask, it has only prepared to run, and will run again.
func (j *job) ran(took time.Duration, err error) {
	if j.held || len(j.limiter) == 0 || !isPutOff(err) && asBlocked(err) == nil && !j.goesOnElsewhere(err) {
		j.counts().handlers.add(took)
		j.a.position.ran(took)
	}
}

// took counts permits of each limit.
func (j *job) took(costs []int64, of *throttle.Reservation) {
	for i, n := range costs {
		j.tookOf(i, &take{n, of, i, len(costs)})
	}
}

// tookOf counts permits of the limit of one of the task's draws.
func (j *job) tookOf(draw int, t *take) {
	j.taken[draw] = append(j.taken[draw], t)
	j.countsOf(draw).granted.Add(t.permits)
}

// countsOf returns the counters of the limit of one of the task's draws.
func (j *job) countsOf(draw int) *limitCounts {
	return &j.l.rules.limits[j.needs.draws[draw].Limit].counts
}

// limitOf returns the counters of the limit that a limiter of the task belongs to, or nil.
func (j *job) limitOf(limiter string) *limitCounts {
	if i := slices.Index(j.needs.limiters, limiter); i >= 0 {
		return j.countsOf(i)
	}
	return nil
}

// countsPark counts that the task parks in the line of a limit, if it does. Its attempt has ended with why.
func (j *job) countsPark(why *ThrottledError) {
	name := j.a.parksIn()
	if limiter, ok := line.SlotLimit(name); ok {
		for _, s := range j.needs.slots {
			if s.Limiter == limiter {
				j.l.rules.slots[s.Limit].counts.parked.Add(1)
			}
		}
		return
	}
	limiter, _, _ := line.Split(name)
	if limit := j.limitOf(limiter); limit != nil {
		if limit.parked.Add(1); why.Err == nil {
			limit.denied.Add(1)
		}
	}
}

// rates returns the rates of the task's limits, as configured.
func (j *job) rates() []throttle.Rate {
	rates := make([]throttle.Rate, len(j.needs.limiters))
	for i := range rates {
		rates[i] = j.needs.draws[i].Rate
	}
	return rates
}
