package asynqlimit

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// Stats counts what the jobs of this process did. The figures only grow, but for
// Throttle.Waiting. Limiters of one keyed limit count together: there is an entry
// for each limit and job of the configuration, whatever the values that jobs bring.
type Stats struct {
	Throttle throttle.Stats
	Limits   []LimitStats // by name
	Jobs     []JobStats   // by name; last, those of types that no pattern matches
}

// OtherJobs is the name in Stats of jobs that the configuration does not know.
const OtherJobs = "(other)"

// LimitStats counts for one limit of the configuration.
type LimitStats struct {
	Name     string
	Granted  int64 // permits that jobs took
	Returned int64 // of them, given back by Settle
	Denied   int64 // attempts put off because the turn was too far, or others were in line
	Parked   int64 // times that a job got in line
	Paused   int64 // pauses because an API said to try later
}

// JobStats counts the attempts of one pattern's jobs.
type JobStats struct {
	Name   string
	Done   int64
	Failed int64
	PutOff int64 // by a limit, the API or max_in_flight: they use up no retry
	// Blocked are those of jobs that cannot run as things stand: see BlockedError.
	Blocked int64
	Waits   Waits // of attempts that got their permits, in this process
}

// Waits is a histogram of durations.
type Waits struct {
	Count   int64
	Sum     time.Duration
	Buckets [len(WaitBounds)]int64 // those that lasted at most as long as the bound
}

// WaitBounds are the bounds of the buckets of Waits.
var WaitBounds = [...]time.Duration{
	time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 30 * time.Second, 5 * time.Minute,
}

type limitCounts struct {
	granted, returned, denied, parked, paused atomic.Int64
}

type jobCounts struct {
	done, failed, putOff, blocked atomic.Int64
	waited                        atomic.Int64                      // nanoseconds
	waits                         [len(WaitBounds) + 1]atomic.Int64 // by bucket, those beyond the last bound last
}

// Stats returns the counters as they are now.
func (l *Limits) Stats() Stats {
	s := Stats{Throttle: l.throttle.Stats()}
	for _, p := range l.rules.plan.Limits() {
		c := &l.rules.limits[p].counts
		s.Limits = append(s.Limits, LimitStats{
			Name:    p.Name,
			Granted: c.granted.Load(), Returned: c.returned.Load(), Denied: c.denied.Load(), Parked: c.parked.Load(), Paused: c.paused.Load(),
		})
	}
	for _, r := range l.rules.all {
		s.Jobs = append(s.Jobs, r.counts.stats(r.Name))
	}
	slices.SortFunc(s.Jobs, func(a, b JobStats) int { return strings.Compare(a.Name, b.Name) })
	s.Jobs = append(s.Jobs, l.others.stats(OtherJobs))
	return s
}

func (c *jobCounts) stats(name string) JobStats {
	s := JobStats{Name: name, Done: c.done.Load(), Failed: c.failed.Load(), PutOff: c.putOff.Load(), Blocked: c.blocked.Load()}
	s.Waits.Sum = time.Duration(c.waited.Load())
	for i := range c.waits {
		s.Waits.Count += c.waits[i].Load()
		if i < len(s.Waits.Buckets) {
			s.Waits.Buckets[i] = s.Waits.Count
		}
	}
	return s
}

func (c *jobCounts) wait(d time.Duration) {
	i, _ := slices.BinarySearch(WaitBounds[:], d)
	c.waits[i].Add(1)
	c.waited.Add(int64(d))
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

// counts are those of the task's job.
func (j *job) counts() *jobCounts {
	if r := j.l.rules.forType(j.task.Type()); r != nil {
		return &r.counts
	}
	return &j.l.others
}

// took counts permits of each limit.
func (j *job) took(costs []int64) {
	for i, n := range costs {
		j.tookOf(i, n)
	}
}

// tookOf counts permits of the limit of one of the task's draws.
func (j *job) tookOf(draw int, n int64) {
	j.taken[draw].add(n, time.Now())
	j.countsOf(draw).granted.Add(n)
}

// countsOf are those of the limit of one of the task's draws.
func (j *job) countsOf(draw int) *limitCounts {
	return &j.l.rules.limits[j.needs.draws[draw].Limit].counts
}

// limitOf are the counts of the limit that a limiter of the task belongs to, or nil.
func (j *job) limitOf(limiter string) *limitCounts {
	if i := slices.Index(j.needs.limiters, limiter); i >= 0 {
		return j.countsOf(i)
	}
	return nil
}

// rates are those of the task's limits, as configured.
func (j *job) rates() []throttle.Rate {
	rates := make([]throttle.Rate, len(j.needs.limiters))
	for i := range rates {
		rates[i] = j.needs.draws[i].Rate
	}
	return rates
}

func (j *job) rateOf(limiter string) throttle.Rate {
	if i := slices.Index(j.needs.limiters, limiter); i >= 0 {
		return j.needs.draws[i].Rate
	}
	return throttle.Rate{}
}
