package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// Adapts is what an adaptive limit has learnt about its API.
type Adapts struct {
	Start      int64     `json:"start"`
	Min        int64     `json:"min"`
	Max        int64     `json:"max"`
	Accepted   int64     `json:"accepted,omitempty"` // what the API is known to accept
	Most       int64     `json:"most,omitempty"`     // what it accepts at most, as far as is known
	Told       int64     `json:"told,omitempty"`     // what the API says
	Cuts       int64     `json:"cuts"`
	Taken      int64     `json:"taken"`
	Refused    int64     `json:"refused"`
	OthersSeen time.Time `json:"others_seen,omitzero"` // when another client was last seen to use the quota

	learnt operate.Learnt
}

// addLearnt reads what a limit has learnt, if it adapts.
func (s *session) addLearnt(ctx context.Context, l *limiter) error {
	a, ok, err := s.fleet.Learnt(ctx, l.Name)
	if err != nil || !ok {
		return err
	}
	l.learnt(a)
	return nil
}

// addAllLearnt is addLearnt for several limits, in one round trip.
func (s *session) addAllLearnt(ctx context.Context, ls []limiter) error {
	names := make([]string, 0, len(ls))
	for _, l := range ls {
		if l.err == nil {
			names = append(names, l.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	all, err := s.fleet.LearntOf(ctx, names...)
	if err != nil {
		return err
	}
	for i := range ls {
		if a, ok := all[ls[i].Name]; ok {
			ls[i].learnt(a)
		}
	}
	return nil
}

// learnt stores what the limit has learnt.
func (l *limiter) learnt(a operate.Learnt) {
	l.Adapts = &Adapts{
		Start: a.Start, Min: a.Min, Max: a.Max, Accepted: a.Accepted, Most: a.Most, Told: a.Told, Cuts: a.Cuts, Taken: a.Taken, Refused: a.Refused,
		OthersSeen: a.OthersSeen.UTC(), learnt: a,
	}
	if a.OthersSeen.IsZero() {
		l.Adapts.OthersSeen = time.Time{}
	}
}

// String describes it in one line.
func (a *Adapts) String() string {
	s := fmt.Sprintf("between %d and %d, from %d", a.Min, a.Max, a.Start)
	switch {
	case a.learnt.Recovers:
		s += "; the API has just refused"
	case a.learnt.Probing:
		s += fmt.Sprintf("; tries whether the API takes more than %d", a.Most)
	case a.Most > 0:
		s += fmt.Sprintf("; the API takes %d at most, as far as known", a.Most)
	default:
		s += "; nothing says what the API takes at most"
	}
	if a.Told > 0 {
		s += fmt.Sprintf("; it says %d", a.Told)
	}
	return s + fmt.Sprintf("; %d cuts, %d of %d refused", a.Cuts, a.Refused, a.Taken+a.Refused)
}
