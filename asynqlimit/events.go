package asynqlimit

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
)

// events are what people ask about afterwards: each of them is logged once.
type events struct {
	mu      sync.Mutex
	paused  map[string]time.Time // limiters that an API paused, and until when
	pauses  map[string]int       // limiters that this process is pausing, and how many times
	full    time.Time            // until when there is no room to remember another of them
	away    *Limits              // the server that found Redis away, and checks whether it is back
	since   time.Time
	refused time.Time // when the last call was refused that permitsRefused has seen

	passRefused atomic.Pointer[jobview.Refused] // the last pass of a caller that Redis refused
}

// maxPausedKnown bounds how many paused limiters are remembered, because a keyed limit may have a
// million limiters. One line a minute says how many pauses there were beyond that.
const maxPausedKnown = 1000

// pausedUntil notes that an API has paused a limiter, and until when. News is false if that
// prolongs a known pause by less than a second: many jobs get such answers at the same time.
// Known is false if there are too many paused limiters to remember this one.
func (e *events) pausedUntil(limiter string, now, until time.Time) (news, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if until.Sub(e.paused[limiter]) < time.Second {
		return false, true
	}
	if e.paused == nil {
		e.paused = map[string]time.Time{}
	}
	if _, there := e.paused[limiter]; !there && len(e.paused) >= maxPausedKnown {
		if now.Before(e.full) {
			return false, false
		}
		maps.DeleteFunc(e.paused, func(_ string, until time.Time) bool { return until.Before(now) })
		if len(e.paused) >= maxPausedKnown {
			e.full = now.Add(time.Second) // a search for each answer would cost more than it is worth
			return false, false
		}
	}
	e.paused[limiter] = until
	return true, true
}

// pausing notes that this process pauses a limiter until done is called.
func (e *events) pausing(limiter string) (done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pauses == nil {
		e.pauses = map[string]int{}
	}
	e.pauses[limiter]++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.pauses[limiter]--; e.pauses[limiter] == 0 {
			delete(e.pauses, limiter)
		}
	}
}

// pausedBy logs that an API has paused a limit for the fleet with its answer to a job.
func (l *Limits) pausedBy(j *job, limiter string, d time.Duration) {
	now := time.Now()
	news, known := l.events.pausedUntil(limiter, now, now.Add(d))
	if news {
		l.logger.Info("an API told a job to try later: its limit is paused for the whole fleet",
			"limit", limiter, "for", d, "task_id", j.a.id, "type", j.task.Type(), "queue", j.a.queue)
	}
	if known {
		return
	}
	if pauses := l.reports.add(now, "paused beyond those known"); pauses > 0 {
		l.logger.Info("APIs told jobs to try later: many more limits are paused; they are logged together, once a minute",
			"pauses", pauses, "limit", limiter, "for", d)
	}
}

// redisAnswered logs that Redis is away, and that it is back. It is called after each pass of the
// caller; err is nil if the pass went well. What Redis refuses to do is logged once a minute.
func (l *Limits) redisAnswered(err error) {
	if _, refused := errors.AsType[redis.Error](err); refused {
		now := time.Now()
		l.events.passRefused.Store(&jobview.Refused{Err: err, At: now})
		if l.reports.add(now, "bring") > 0 {
			l.logger.Warn("cannot bring waiting jobs back; trying on", "error", err)
		}
		return
	}
	e := &l.events
	e.mu.Lock()
	began, ended, since := err != nil && e.away == nil, err == nil && e.away == l, e.since
	switch {
	case began:
		e.away, e.since = l, time.Now()
	case ended:
		e.away = nil
	}
	e.mu.Unlock()
	switch {
	case began:
		l.logger.Warn("Redis is away; jobs wait until it is back", "error", err)
	case ended:
		l.logger.Info("Redis is back; jobs go on", "away", time.Since(since).Round(time.Millisecond))
	}
}

// permitsRefused logs once a minute that Redis, though it is there, refuses calls for permits. It is called after each pass
// of the caller that went well.
func (l *Limits) permitsRefused() {
	refused := jobview.PermitsRefused(l.throttle.Stats())
	if refused == nil {
		return
	}
	e := &l.events
	e.mu.Lock()
	news := refused.At.After(e.refused)
	e.refused = refused.At
	e.mu.Unlock()
	if news && l.reports.add(time.Now(), "permits refused") > 0 {
		l.logger.Warn("Redis refuses calls for permits; jobs with limits wait and ask again", "error", refused.Err)
	}
}

// forget records that the server ends: another server of the process may notice how Redis is.
func (e *events) forget(l *Limits) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.away == l {
		e.away = nil
	}
}

// drains logs how many jobs a server has when it begins to drain, and returns a function that
// logs how the draining ended.
func (l *Limits) drains() (ended func()) {
	began := time.Now()
	running, waiting := l.attempts.count()
	before := l.ranToEnd()
	l.logger.Info("draining: no job starts any more", "server", l.name, "running", running, "waiting", waiting)
	return func() {
		l.logger.Info("stopped", "server", l.name, "ran_to_end", l.ranToEnd()-before, "given_back_while_running", l.attempts.cutOff(), "after", time.Since(began).Round(time.Millisecond))
	}
}

// ranToEnd is how many jobs of all servers of the process are done or have failed.
func (p *process) ranToEnd() (n int64) {
	add := func(c *jobCounts) { n += c.done.Load() + c.failed.Load() }
	for _, r := range p.rules.all {
		add(&r.counts)
	}
	add(&p.others)
	return n
}

// count returns how many attempts run their handlers, and how many wait.
func (t *attempts) count() (running, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.all {
		a.mu.Lock()
		switch {
		case a.settled || a.over:
		case a.phase == runs || a.phase == prepares:
			running++
		default:
			waiting++
		}
		a.mu.Unlock()
	}
	return running, waiting
}

// cutOff returns how many attempts asynq gave back while their handlers ran.
func (t *attempts) cutOff() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.all {
		a.mu.Lock()
		if !a.over && (a.phase == runs || a.phase == prepares) {
			n++
		}
		a.mu.Unlock()
	}
	return n
}
