package throttle

import (
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/oracle"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// pauseChange is until when a limit was paused, from a time of fake time on, in us.
type pauseChange struct{ at, until int64 }

// judgePauses checks that a pause stops everybody within 100 ms and a round trip.
func (s *simulation) judgePauses() {
	if s.steps {
		return
	}
	for _, u := range s.uses {
		if u.none {
			continue
		}
		for _, l := range u.limits {
			at := u.at.UnixMicro()
			if !u.handed.IsZero() {
				at = u.handed.UnixMicro()
			}
			known := at - near - u.process.slowest.Microseconds()
			if least := u.process.way * 2; least >= 25*time.Millisecond {
				known -= (least/4 + 50*time.Millisecond).Microseconds() // what it tells Redis is rounded up
			}
			if p, paused := l.pausedAll(known, at); paused {
				s.broken("a pause stops everybody", "%s had a permit of %s at %v; it was paused from %v to %v", u.process.name, l.name,
					micros(at-s.begin.UnixMicro()), micros(p.at-s.begin.UnixMicro()), micros(p.until-s.begin.UnixMicro()))
			}
		}
	}
}

// pausedAll returns the pause that was in force all the time, if there was one.
func (l *simulatedLimit) pausedAll(from, to int64) (found pauseChange, paused bool) {
	for _, p := range l.pauses {
		switch {
		case p.at > to:
			return found, paused
		case p.at <= from:
			found, paused = p, p.until > to
		default:
			paused = paused && p.until > to
		}
	}
	return found, paused
}

// judgeIdle checks that nobody makes calls when nobody waits.
func (s *simulation) judgeIdle() {
	time.Sleep(10 * time.Second) // what was lost has been asked again
	before := s.calls()
	time.Sleep(10 * time.Second)
	if n := s.calls() - before; n > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.broken("nobody asks for nothing", "%d calls in 10 s, though all waits have ended", n)
	}
}

// judgeLeaks checks that a limit that was never changed has in its log what callers got, and, if
// no call went wrong, nothing else.
func (s *simulation) judgeLeaks() {
	now := s.now()
	for _, l := range s.limits {
		if c := l.changes[0].limit; len(l.changes) > 1 || l.gone || s.steps || c.PerClient || c.Calendar {
			continue
		}
		limit := l.changes[0].limit
		log, _ := s.log(script.KeysOf(l.name, "")[2])
		held := log.After(limit.Cutoff(now)).Sum()
		oldest := limit.Cutoff(now)
		if l.filled > oracle.Parts {
			oldest -= limit.Bucket() // its entries may have been merged into an entry at the end of their bucket
		}
		least, most := int64(0), l.fill.After(oldest).Sum()
		for _, u := range s.uses {
			for i, of := range u.limits {
				at := u.at.UnixMicro()
				if of != l || at <= limit.Cutoff(now) {
					continue
				}
				most += u.ns[i]
				if u.maybe != nil {
					most += u.maybe[i]
				}
				if !u.late && !u.process.dead() && !u.unused && at-limit.Guard > limit.Cutoff(now) && limit.Guard > 0 {
					least += u.ns[i]
				}
			}
		}
		s.count["logs at the end"]++
		if held < least {
			s.broken("no use goes unrecorded", "%s: callers had %d permits that count, its log holds %d", l.name, least, held)
		}
		if most += l.stood + s.spared(limit.Permits); held > most && s.calm() {
			s.broken("nothing leaks", "%s: its log holds %d permits, and callers had %d: %v", l.name, held, most, log.After(limit.Cutoff(now)))
		}
	}
}

// judgeGrants checks, if no call went wrong, that callers had what the scripts granted. Nothing else may be left of it but what
// changes cost those who wait.
func (s *simulation) judgeGrants() {
	perClient := func(c rateChange) bool { return c.limit.PerClient }
	for _, l := range s.limits {
		if l.gone || l.resets || l.uncounted || s.steps || s.crowd || !s.calm() || slices.ContainsFunc(l.changes, perClient) {
			continue
		}
		s.count["limits whose grants are judged"]++
		if had := s.usedOf(l) + l.lost; l.granted > had {
			s.broken("nothing leaks", "%s: %d permits were granted, and callers had %d, with the %d that changes let stand", l.name, l.granted, had, l.lost)
		}
	}
}

// usedOf is how many permits of a limit callers had so far.
func (s *simulation) usedOf(l *simulatedLimit) (n int64) {
	s.usesMu.Lock()
	defer s.usesMu.Unlock()
	for _, u := range s.uses {
		for i, of := range u.limits {
			if of == l {
				n += u.ns[i]
				if u.maybe != nil {
					n += u.maybe[i]
				}
			}
		}
	}
	return n
}

// spared is how many permits of a limit may count as used that came too late in a shared call: a
// small part for each process, in the at most two spans that an interval touches.
func (s *simulation) spared(permits int64) (n int64) {
	const share = 64
	for _, p := range s.procs {
		if p.shares {
			n += 2 * (permits / share)
		}
	}
	return n
}

// calm reports whether no call goes wrong in this fleet.
func (s *simulation) calm() bool {
	for _, p := range s.procs {
		if p.faults > 0 {
			return false
		}
	}
	return true
}
