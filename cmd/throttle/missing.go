package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/similar"
)

// searchTime is the longest time to search for a similar name.
const searchTime = 2 * time.Second

// missing is the error for a name that no limiter has.
func (s *session) missing(ctx context.Context, name string) error {
	if err := s.slotsInstead(ctx, name); err != nil {
		return err
	}
	if similar := s.similar(ctx, name); similar != "" {
		return fmt.Errorf("no limiter %q%s: did you mean %s? throttle list shows all", name, s.where(), similar)
	}
	return fmt.Errorf("no limiter %q%s: throttle list shows all; one appears when a worker applies its configuration, or with throttle set --create", name, s.where())
}

// uncreated is the error for a rate that is set on a name that no limiter has.
func (s *session) uncreated(ctx context.Context, name string) error {
	if similar := s.similar(ctx, name); similar != "" {
		return usage("no limiter %q%s: did you mean %s? --create makes a new one", name, s.where(), similar)
	}
	return usage("no limiter %q%s: --create makes a new one; throttle list shows those that are there", name, s.where())
}

// slotsInstead is the error for the name of a limit in flight; nil if there is none. It only helps to say what is wrong: errors of
// the search are ignored.
func (s *session) slotsInstead(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	if there, err := s.existsInFlight(ctx, name); err != nil || !there {
		return nil
	}
	return hasSlots(name)
}

// similar finds the names that are most like this one, also among those of the configuration
// and of limits with a key. They are only a hint: errors of the search are ignored.
func (s *session) similar(ctx context.Context, name string) string {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	near := similar.To(name)
	for l, err := range s.fleet.Limiters(ctx, "") {
		if err != nil {
			break
		}
		near.Consider(l.Name)
		if colon := strings.LastIndexByte(l.Name, ':'); colon > 0 {
			near.Consider(l.Name[:colon])
		}
	}
	if s.config != nil {
		for limit := range s.config.Limits {
			near.Consider(limit)
		}
	}
	return near.String()
}
