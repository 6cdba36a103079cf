// Package metrics shows a worker to Prometheus: what its jobs did, and how the limits and queues of
// the whole fleet stand.
//
//	registry.MustRegister(metrics.NewCollector(w))
//
// The page docs/metrics.md lists all metrics, and alerts.yaml beside it has rules for them. A worker with
// an admin address serves them itself. An asynq.Server of your own has them from asynqlimit's
// Limits.Collector.
package metrics

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/internal/refusal"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// readTimeout is how long a scrape waits for Redis at most: half of Prometheus's own patience.
const readTimeout = 5 * time.Second

// Source is what a [Collector] shows: a *worker.Worker.
type Source interface {
	Stats() jobview.Stats
	Overview(context.Context) (jobview.Overview, error)
}

// Collector shows a worker to a Prometheus registry. The counters are those of the worker's own
// process. The gauges of limits and queues are read from Redis at each scrape and describe the
// whole fleet, so they are the same on each of its workers: use their max, not their sum. While
// Redis does not answer, these gauges are missing and jobthrottle_redis_up is 0.
//
// Labels are names of the configuration, never values of jobs. So the number of series depends
// only on the configuration.
type Collector struct {
	source Source
}

// NewCollector returns a [Collector] to register.
func NewCollector(source Source) *Collector { return &Collector{source} }

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range all {
		descs <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	e := emitter{metrics}
	e.stats(c.source.Stats())
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	overview, err := c.source.Overview(ctx)
	up := 1.0
	if err != nil && !answered(err) {
		up = 0
	}
	e.gauge(redisUp, up)
	if err != nil {
		return
	}
	e.limits(overview.Limits)
	for _, l := range overview.InFlight {
		e.gauge(slotsParked, float64(l.Parked), l.Name)
	}
	e.pools(overview.Pools)
}

// answered reports whether an error is a refusal of a Redis that serves others: that a right is missing, of which a worker warns
// when it starts, or that somebody wrote something else under a key.
func answered(err error) bool {
	_, reply := errors.AsType[redis.Error](err)
	return refusal.LacksRight(err) || reply && !refusal.Passes(err) && !refusal.LacksPassword(err)
}

// emitter makes metrics from figures.
type emitter struct {
	metrics chan<- prometheus.Metric
}

func (e emitter) counter(d *prometheus.Desc, n int64, labels ...string) {
	e.metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), valid(labels)...)
}

func (e emitter) gauge(d *prometheus.Desc, x float64, labels ...string) {
	e.metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, valid(labels)...)
}

func (e emitter) histogram(d *prometheus.Desc, w jobview.Waits, labels ...string) {
	buckets := make(map[float64]uint64, len(jobview.WaitBounds))
	for i, bound := range jobview.WaitBounds {
		buckets[bound.Seconds()] = uint64(w.Buckets[i])
	}
	e.metrics <- prometheus.MustNewConstHistogram(d, uint64(w.Count), w.Sum.Seconds(), buckets, valid(labels)...)
}

// valid replaces invalid UTF-8 in labels. asynq allows it in names of queues, but Prometheus
// does not allow it in labels.
func valid(labels []string) []string {
	for i, l := range labels {
		labels[i] = strings.ToValidUTF8(l, "\uFFFD")
	}
	return labels
}

func (e emitter) stats(s jobview.Stats) {
	e.counter(redisCalls, s.Throttle.Calls)
	e.counter(redisErrors, s.Throttle.Errors)
	e.counter(stalePermits, s.Throttle.Stale)
	e.counter(latePermits, s.Throttle.Late)
	e.gauge(waiters, float64(s.Throttle.Waiting))
	for _, l := range s.Limits {
		e.counter(granted, l.Granted, l.Name)
		e.counter(returned, l.Returned, l.Name)
		e.counter(denials, l.Denied, l.Name)
		e.counter(parked, l.Parked, l.Name)
		e.counter(pauses, l.Paused, l.Name)
		if l.DryRun {
			e.counter(wouldWait, l.WouldWait, l.Name)
		}
	}
	for _, l := range s.Slots {
		e.counter(slotsHeld, l.Held, l.Name)
		e.gauge(slotsRunning, float64(l.Running), l.Name)
		e.counter(slotsLost, l.Lost, l.Name)
		e.counter(slotsOutlived, l.Outlived, l.Name)
		if l.DryRun {
			e.counter(wouldWait, l.WouldWait, l.Name)
		}
	}
	for _, j := range s.Jobs {
		e.counter(attempts, j.Done, j.Name, "done")
		e.counter(attempts, j.Failed, j.Name, "failed")
		e.counter(attempts, j.PutOff, j.Name, "put_off")
		e.counter(attempts, j.Blocked, j.Name, "blocked")
		e.histogram(waits, j.Waits, j.Name)
		e.histogram(jobWaits, j.WholeWaits, j.Name)
		e.histogram(handlers, j.Handlers, j.Name)
	}
}

func (e emitter) limits(limits []jobview.LimitOverview) {
	for _, l := range limits {
		e.gauge(parkedJobs, float64(l.Parked), l.Name)
		e.gauge(parkedLimiters, float64(l.Lines), l.Name)
		if l.Share != "" && l.Key == "" {
			e.gauge(tenants, float64(l.AllTenants), l.Name)
		}
		e.gauge(oldestWaiting, l.Oldest.Seconds(), l.Name)
		if l.Key != "" { // its limiters have their own usage, one for each value
			e.shortest(l)
			continue
		}
		if a := l.Learnt; a != nil {
			e.gauge(learntAccepted, float64(a.Accepted), l.Name)
			e.gauge(learntMost, float64(a.Most), l.Name)
			e.gauge(learntCuts, float64(a.Cuts), l.Name)
			e.gauge(learntRefused, float64(a.Refused), l.Name)
		}
		for _, u := range l.Limiters {
			e.gauge(permits, float64(u.Rate.Permits), l.Name)
			e.gauge(interval, u.Rate.Interval.Seconds(), l.Name)
			e.gauge(used, float64(u.Used), l.Name)
			e.gauge(reserved, float64(u.Reserved), l.Name)
			e.gauge(available, float64(u.Available), l.Name)
			e.gauge(paused, u.Paused.Seconds(), l.Name)
		}
	}
}

// shortest tells of the limiters of a limit with a key what makes jobs wait although nothing is wrong: only if all of them
// are paused, or have long intervals, that is why none starts.
func (e emitter) shortest(l jobview.LimitOverview) {
	intervals, pauses := []time.Duration{l.Rate.Interval}, []time.Duration{0}
	if len(l.Limiters) > 0 {
		intervals, pauses = nil, nil
	}
	for _, u := range l.Limiters {
		intervals, pauses = append(intervals, u.Rate.Interval), append(pauses, u.Paused)
	}
	e.gauge(interval, slices.Min(intervals).Seconds(), l.Name)
	e.gauge(paused, slices.Min(pauses).Seconds(), l.Name)
}

func (e emitter) pools(pools []jobview.PoolOverview) {
	for _, p := range pools {
		e.gauge(slots, float64(p.Slots), p.Name)
		for _, q := range p.Queues {
			for state, n := range map[string]int64{
				"pending": q.Pending, "active": q.Active, "scheduled": q.Scheduled, "retry": q.Retry, "parked": q.Parked,
				"archived": q.Archived, "completed": q.Completed,
			} {
				e.gauge(queueJobs, float64(n), p.Name, q.Name, state)
			}
			stands := 0.0
			if q.Paused {
				stands = 1
			}
			e.gauge(queuePaused, stands, p.Name, q.Name)
		}
	}
}
