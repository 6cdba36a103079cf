package worker

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// Stats counts what the jobs of this worker did since it was made. The figures
// only grow, but for Throttle.Waiting. Limiters of one keyed limit count
// together: there is an entry for each limit and job of the configuration,
// whatever the values that jobs bring.
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
	PutOff int64 // by a limit, the API or max_in_flight: they burn no retry
	// Blocked are those of jobs that cannot run as things stand: see BlockedError.
	Blocked int64
	Waits   Waits // in their slots, of attempts that got their permits
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
func (w *Worker) Stats() Stats {
	s := Stats{Throttle: w.throttle.Stats()}
	for _, l := range w.plans.Limits() {
		c := w.counts[l]
		s.Limits = append(s.Limits, LimitStats{
			Name:    l.Name,
			Granted: c.granted.Load(), Returned: c.returned.Load(), Denied: c.denied.Load(), Parked: c.parked.Load(), Paused: c.paused.Load(),
		})
	}
	for _, j := range w.jobs {
		s.Jobs = append(s.Jobs, j.counts.stats(j.Name))
	}
	slices.SortFunc(s.Jobs, func(a, b JobStats) int { return strings.Compare(a.Name, b.Name) })
	s.Jobs = append(s.Jobs, w.others.stats(OtherJobs))
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
	_, throttled := errors.AsType[*ThrottledError](err)
	switch {
	case err == nil:
		c.done.Add(1)
	case asBlocked(err) != nil:
		c.blocked.Add(1)
	case throttled:
		c.putOff.Add(1)
	default:
		c.failed.Add(1)
	}
}

// errPanicked stands for the result of an attempt that has none.
var errPanicked = errors.New("panicked")

// counted calls attempt and counts how it ended, also if it panics.
func (p *pool) counted(taskType string, attempt func() error) error {
	counts := &p.w.others
	if j := p.w.jobFor(taskType); j != nil {
		counts = &j.counts
	}
	err := errPanicked
	defer func() { counts.attempt(err) }()
	err = attempt()
	return err
}

// clock adds the time until the returned function is called to what the turn has waited.
func (t *turn) clock() (stop func()) {
	began := time.Now()
	return func() { t.waited += time.Since(began) }
}

// took counts n permits of each limit.
func (t *turn) took(n int64) {
	t.taken += n
	for _, d := range t.draws {
		t.counts(d).granted.Add(n)
	}
}

// counts are those of the limit that the task draws on.
func (t *turn) counts(d plan.Draw) *limitCounts { return t.pool.w.counts[d.Limit] }

// drawOn returns what the task draws on a limiter, or false.
func (t *turn) drawOn(limiter string) (plan.Draw, bool) {
	i := slices.IndexFunc(t.draws, func(d plan.Draw) bool { return d.Limiter == limiter })
	if i < 0 {
		return plan.Draw{}, false
	}
	return t.draws[i], true
}
