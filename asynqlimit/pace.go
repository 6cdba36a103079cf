package asynqlimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// pace is how fast a limiter serves its lines: the limiter in Redis, which operators change, not
// the limit in the configuration.
type pace struct {
	rate throttle.Rate // no permits: neither Redis nor the configuration has the limiter, and it gives any number
	free time.Time     // when its next permit is free
	read time.Time
	due  int64 // permits that were due within lead then, less those that are for certain tasks
	got  latest
}

// latest is when the latest came of the tasks that got permits of a limiter here, by Redis's clock, in microseconds after 1970.
type latest struct {
	arrival int64
	before  int64     // what it was some time ago
	at      time.Time // when it was that
}

// add notes a task that got permits.
func (l *latest) add(arrival int64, now time.Time) {
	l.before = l.lately(now)
	if now.Sub(l.at) > soonGone {
		l.at = now
	}
	l.arrival = max(l.arrival, arrival)
}

// lately leaves out those that got permits just now: all permits that are due together go to tasks at about the same time.
func (l latest) lately(now time.Time) int64 {
	if now.Sub(l.at) > soonGone {
		return l.arrival
	}
	return l.before
}

const (
	// paceLasts is for how long a pace counts as known, but what is due only for lead. If it is used when it is older
	// than paceFresh, it is read again.
	paceLasts, paceFresh = 5 * time.Second, 500 * time.Millisecond
	// maxPaces is how many paces a process remembers. maxSurveyed is how many of the paces that
	// jobs have asked for one pass reads.
	maxPaces, maxSurveyed = 10_000, 100
)

// paceOf returns the pace of a limiter that was read now. If it is PerClient, the permits are those of this client.
func paceOf(u operate.FleetUsage, client string, now time.Time) pace {
	return pace{rate: u.Rate, free: now.Add(max(u.NextFree, u.Paused)), read: now, due: standingOf(u, client, 1).tasks(0)}
}

// has reports whether so many permits are there, or are soon, as far as is known; always if the limiter gives any number.
func (p pace) has(permits int64, now time.Time) bool {
	return p.due >= permits && now.Sub(p.read) <= lead || p.rate.Permits == 0
}

// promised notes that so many permits of a limiter are for certain tasks: they were called for them, or have them.
func (c *caller) promised(limiter string, permits int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.paces[limiter]; ok {
		p.due -= permits
		c.paces[limiter] = p
	}
}

// gotPermits notes that a task has permits of limiters.
func (c *caller) gotPermits(a *attempt, limiters []string) {
	c.answered(a) // it may have asked again (asksAgain)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, name := range limiters {
		if p, ok := c.paces[name]; ok {
			p.got.add(a.since, now)
			c.paces[name] = p
		}
	}
}

// overtaken reports whether tasks that came later than a task have got permits of its limiters, some time ago.
func (c *caller) overtaken(a *attempt, limiters []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	return slices.ContainsFunc(limiters, func(name string) bool { return c.paces[name].got.lately(now) > a.since })
}

// takes is about how long a line with tasks for so many permits takes to empty.
func (p pace) takes(permits int64, now time.Time) time.Duration {
	return max(p.free.Sub(now), 0) + timeFor(permits, p.rate)
}

// timeFor is how long a rate takes to give so many permits, or a century.
func timeFor(permits int64, rate throttle.Rate) time.Duration {
	const century = 100 * 365 * 24 * float64(time.Hour)
	return time.Duration(min(float64(permits)/float64(max(rate.Permits, 1))*float64(rate.Interval), century))
}

// inspect reads limiters, and notes their paces. Unknown has those that could not be read. That one is broken is no error: it is
// logged once a minute.
func (c *caller) inspect(ctx context.Context, names []string) (found map[string]operate.FleetUsage, unknown map[string]bool, err error) {
	usages, err := c.fleet.InspectFor(ctx, c.l.throttle.ID(), names...)
	unknown = map[string]bool{}
	if spoilt, ok := errors.AsType[*operate.SpoiltError](err); ok {
		for _, l := range spoilt.Limiters {
			unknown[l.Limiter] = true
		}
		if c.l.reports.add(time.Now(), "broken limits") > 0 {
			c.l.logger.Warn("limits are broken; their jobs wait", "limits", len(spoilt.Limiters), "error", spoilt.Limiters[0])
		}
		err = nil
	} else if err != nil {
		for _, name := range names {
			unknown[name] = true
		}
	}
	found = make(map[string]operate.FleetUsage, len(names))
	for _, u := range usages {
		found[u.Name] = u
	}
	for _, name := range names {
		if unknown[name] || found[name].Rate.Permits > 0 {
			continue
		}
		if limit := c.l.rules.limitOf(name); limit != nil {
			rate := limit.RateOf(name) // with which the first job will create it
			found[name] = operate.FleetUsage{Name: name, Usage: throttle.Usage{Rate: rate, Available: rate.Permits}}
		}
	}
	if err != nil {
		err = fmt.Errorf("read the limiters: %w", err)
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.paces) > maxPaces {
		clear(c.paces)
	}
	for _, name := range names {
		if delete(c.wanted, name); !unknown[name] {
			p := paceOf(found[name], c.l.throttle.ID(), now)
			p.got = c.paces[name].got
			c.paces[name] = p
		}
	}
	return found, unknown, err
}

// survey reads the limiters whose pace jobs have asked for.
func (c *caller) survey(ctx context.Context) error {
	var names []string
	c.mu.Lock()
	for name := range c.wanted {
		if len(names) < maxSurveyed {
			names = append(names, name)
		}
	}
	clear(c.wanted)
	c.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	_, _, err := c.inspect(ctx, names)
	return err
}

// paceNow returns the pace of a limiter, if it is known. If it is not known or not fresh, the
// next pass reads it. Whoever calls it has locked c.
func (c *caller) paceNow(name string, now time.Time) (pace, bool) {
	p, ok := c.paces[name]
	age := now.Sub(p.read)
	if !ok || age > paceFresh {
		c.wanted[name] = true
	}
	return p, ok && age <= paceLasts
}
