package expr

import (
	"fmt"
	"strconv"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// Cost is what a job takes from a limit: a fixed number, or one that the job has.
type Cost struct {
	fixed int64
	from  *Selector // nil if the number is fixed
}

// ParseCost parses a Cost, which is 1 if the text is empty. Its error says what would be right.
func ParseCost(s string) (Cost, error) {
	if s == "" {
		return Cost{fixed: 1}, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		if n < 1 || n > throttle.MaxPermits {
			return Cost{}, fmt.Errorf("invalid number %d: want 1 to %d", n, int64(throttle.MaxPermits))
		}
		return Cost{fixed: n}, nil
	}
	sel, err := ParseSelector(s)
	if err != nil || sel.source == "queue" {
		return Cost{}, fmt.Errorf("invalid permits %q: want a whole number, payload.PATH or header.NAME", s)
	}
	return Cost{from: &sel}, nil
}

// Fixed returns the number, or 0 if each job has its own.
func (c Cost) Fixed() int64 { return c.fixed }

// Field returns the field of a payload that has the number, or "" if the number is not in the
// payload.
func (c Cost) Field() string {
	if c.from == nil {
		return ""
	}
	return c.from.Field()
}

// String returns the cost as configuration files write it.
func (c Cost) String() string {
	if c.from == nil {
		return strconv.FormatInt(c.fixed, 10)
	}
	return c.from.String()
}

// Of returns what the task costs.
func (c Cost) Of(t Task) (int64, error) {
	if c.from == nil {
		return c.fixed, nil
	}
	text, err := c.from.Pick(t)
	if err != nil {
		return 0, fmt.Errorf("permits: %w", err)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > throttle.MaxPermits {
		return 0, fmt.Errorf("permits: %s is %.40q: want a whole number from 1 to %d", c.from, text, int64(throttle.MaxPermits))
	}
	return n, nil
}
