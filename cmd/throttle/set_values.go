package main

import (
	"context"
	"fmt"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// setValues changes all values of a limit with a key. It changes none if the change is invalid
// for one of them.
func (s *session) setValues(ctx context.Context, t target, args []string, f setFlags, given func(flag string) bool) error {
	if len(t.values) == 0 {
		return &cli.UsageError{Err: noValues(t.name)}
	}
	retyped := 0
	var less []lowered
	configured := map[string]*limiter{}
	for _, value := range t.values {
		before := fromListed(value)
		if before.err != nil {
			continue // reported when it is processed
		}
		configured[value.Name] = &before
		rate, err := f.rate(&before, args, given)
		if err != nil {
			return asUsage(fmt.Errorf("%q: %w", value.Name, err), throttle.ErrInvalidRate)
		}
		if rate.Type != before.rate.Type {
			retyped++
		}
		if lowers(&before, rate) {
			less = append(less, lowered{value.Name, before.rate.Permits, rate.Permits, f.pin || before.Pinned})
		}
	}
	if err := s.strands(ctx, fmt.Sprintf("Change limit %q", t.name), less); err != nil {
		return err
	}
	if retyped > 0 {
		question := fmt.Sprintf("Change the type of %s of limit %q? What was used is forgotten.", valuesOf(retyped), t.name)
		if err := s.confirm(ctx, typeForgets, question); err != nil {
			return err
		}
	} else if err := s.sweep(ctx, t, "Change"); err != nil {
		return err
	}
	said := report{"changed", "values that appear later have the rate of the workers' configuration"}
	return s.all(ctx, t, said, func(l *throttle.Limiter, before *limiter) error {
		switch {
		case before == nil:
			return throttle.ErrNotInitialized // it has gone meanwhile
		case before.err != nil && len(args) == 0:
			return before.err
		case before.err != nil:
			before = configured[l.Name()] // nil if that is what is broken
		}
		rate, err := f.rate(before, args, given)
		if err != nil {
			return err
		}
		if f.pin {
			if err := s.fleet.Pin(ctx, l.Name()); err != nil {
				return err
			}
		}
		_, err = l.UpdateRate(ctx, rate)
		return err
	})
}
