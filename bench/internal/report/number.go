package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/jobthrottle/jobthrottle/bench/internal/figures"
)

// number writes x with three significant digits, and large numbers in full.
func number(x float64) string {
	switch size := math.Abs(x); {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return "-"
	case size >= 100 || x == math.Trunc(x):
		return grouped(x)
	case size >= 10:
		return fmt.Sprintf("%.1f", x)
	case size >= 1:
		return fmt.Sprintf("%.2f", x)
	default:
		return fmt.Sprintf("%.3g", x)
	}
}

// grouped writes x as a whole number, in groups of three digits.
func grouped(x float64) string {
	digits := fmt.Sprintf("%.0f", math.Abs(x))
	var b strings.Builder
	if x < 0 && digits != "0" {
		b.WriteByte('-')
	}
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// times writes a ratio, as 25x or 1/25.
func times(x float64) string {
	if 0 < x && x < 0.1 {
		return "1/" + number(1/x)
	}
	return number(x) + "x"
}

// ofTarget writes a figure as its target does: 1/25, at least 8x, at most 1000.
func ofTarget(t figures.Target, x float64) string {
	switch {
	case t.To == "":
		return number(x)
	case t.Bound < 1:
		return "1/" + number(1/x)
	default:
		return times(x)
	}
}

// asked writes what a target asks for.
func asked(t figures.Target) string {
	if t.AtLeast {
		return "at least " + ofTarget(t, t.Bound)
	}
	return "at most " + ofTarget(t, t.Bound)
}
