package asynqlimit

import (
	"context"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// changesChannel is where package throttle says which limiter was changed.
const changesChannel = "jobthrottle:changes"

// watch logs until ctx ends what somebody else changes about the limits of the configuration: an
// operator, or a worker with another configuration. It leaves out the limiters of the values of a
// key, because they are too many. One server of the process does it, and when it ends another goes on.
func (p *process) watch(ctx context.Context) {
	select {
	case p.watches <- struct{}{}:
		defer func() { <-p.watches }()
	case <-ctx.Done():
		return
	}
	known := map[string]*seenLimit{} // nil: it does not exist
	for _, l := range p.rules.plan.Limits() {
		if l.Key == "" {
			known[l.Name] = nil
		}
	}
	if len(known) == 0 {
		return
	}
	fleet := operate.NewFleet(p.rdb)
	check := func(names ...string) {
		usages, err := fleet.Inspect(ctx, names...)
		if ctx.Err() != nil || err != nil && len(usages) == 0 {
			return // Redis is away, or the limiter is broken: others log that
		}
		for _, name := range names {
			known[name] = nil
		}
		for _, u := range usages {
			known[u.Name] = &seenLimit{u, time.Now()}
		}
	}
	sub := p.rdb.Subscribe(ctx, changesChannel)
	defer sub.Close()
	changes := sub.Channel()
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	check(names...)
	for {
		select {
		case <-ctx.Done():
			return
		case msg, ok := <-changes:
			if !ok {
				return
			}
			was, ours := known[msg.Payload]
			if !ours {
				continue
			}
			check(msg.Payload)
			p.tellChange(msg.Payload, was, known[msg.Payload])
		}
	}
}

// seenLimit is a limiter as it was when it was read.
type seenLimit struct {
	operate.FleetUsage
	at time.Time
}

func (s *seenLimit) pausedUntil() time.Time { return s.at.Add(s.Paused) }

// tellChange logs how a limiter differs from what was known about it.
func (p *process) tellChange(name string, was, now *seenLimit) {
	switch {
	case was == nil && now == nil:
	case now == nil:
		p.logger.Info("a limit was deleted; the next job creates it from the configuration", "limit", name)
	case was == nil:
		p.logger.Info("a limit was created", "limit", name, "rate", now.Rate.String())
	case was.Rate != now.Rate:
		p.logger.Info("a limit was changed", "limit", name, "rate", now.Rate.String(), "type", now.Rate.Type.String(), "was", was.Rate.String(), "pinned", now.Pinned)
	case was.Pinned != now.Pinned:
		p.logger.Info("a limit was pinned or unpinned", "limit", name, "pinned", now.Pinned)
	}
	switch {
	case now == nil:
	case now.Paused > 0 && (was == nil || now.pausedUntil().Sub(was.pausedUntil()) > time.Second) && !p.events.knowsPause(name, now.Paused):
		p.logger.Info("a limit is paused", "limit", name, "for", now.Paused.Round(time.Millisecond))
	case now.Paused == 0 && was != nil && was.pausedUntil().Sub(now.at) > 0:
		p.logger.Info("a limit goes on; its pause was ended", "limit", name)
	}
}

// knowsPause reports whether this process has logged this pause, or a longer one, with its
// reason, or is about to.
func (e *events) knowsPause(limiter string, d time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pauses[limiter] > 0 || time.Now().Add(d).Sub(e.paused[limiter]) < time.Second
}
