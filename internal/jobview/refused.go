package jobview

import (
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/refusal"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/replicas"
)

// Refused is a call that Redis refused: one for permits, or one that brings waiting jobs back.
type Refused struct {
	Err error
	At  time.Time
}

// PermitsRefused returns the last call of a process for permits if it failed because Redis refused it, whatever limit it was
// for, or because too few replicas acknowledged it. It is nil if the last failure was another one: that Redis cannot be
// reached, and what is wrong with a single limit, are told elsewhere.
func PermitsRefused(s throttle.Stats) *Refused {
	_, answered := errors.AsType[redis.Error](s.LastError)
	_, few := errors.AsType[*replicas.ReplicasError](s.LastError)
	if few || answered && (refusal.Passes(s.LastError) || refusal.LacksRight(s.LastError)) {
		return &Refused{s.LastError, s.LastErrorAt}
	}
	return nil
}

// Later returns the later of two calls, either of which may be nil.
func (r *Refused) Later(other *Refused) *Refused {
	if r == nil || other != nil && other.At.After(r.At) {
		return other
	}
	return r
}
