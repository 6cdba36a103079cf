// Package wanted compares measured figures with what is wanted of them.
package wanted

import (
	"errors"
	"fmt"
	"math"
)

// Missed are the figures that are not as wanted.
type Missed struct{ errs []error }

// AtMost returns what is wanted of a figure, and whether it was reached. The row is what the
// figure was measured of.
func (m *Missed) AtMost(row, what string, figure, bound float64) string {
	return m.compare(row, what, figure, "<=", bound, figure <= bound)
}

// AtLeast is the same for a figure that has to be large.
func (m *Missed) AtLeast(row, what string, figure, bound float64) string {
	return m.compare(row, what, figure, ">=", bound, figure >= bound)
}

func (m *Missed) compare(row, what string, figure float64, sign string, bound float64, reached bool) string {
	wanted := fmt.Sprintf("%s %s %v", what, sign, bound)
	if reached {
		return wanted + " reached"
	}
	m.errs = append(m.errs, fmt.Errorf("%s: %s is missed: it is %v", row, wanted, math.Round(1000*figure)/1000))
	return wanted + " missed"
}

// Err names the figures that are not as wanted. It is nil if there are none.
func (m *Missed) Err() error { return errors.Join(m.errs...) }
