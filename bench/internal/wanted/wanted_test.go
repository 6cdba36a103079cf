package wanted_test

import (
	"math"
	"testing"

	"github.com/jobthrottle/jobthrottle/bench/internal/wanted"
)

// TestMissed: a figure at its bound is as wanted. An unknown figure never is.
func TestMissed(t *testing.T) {
	for _, tt := range []struct {
		compare func(m *wanted.Missed) string
		says    string
		err     string
	}{
		{func(m *wanted.Missed) string { return m.AtMost("a", "ideal", 1.03, 1.03) }, "ideal <= 1.03 reached", ""},
		{func(m *wanted.Missed) string { return m.AtMost("a", "ideal", 1.0312, 1.03) }, "ideal <= 1.03 missed", "a: ideal <= 1.03 is missed: it is 1.031"},
		{func(m *wanted.Missed) string { return m.AtLeast("a", "speed", 0.95, 0.95) }, "speed >= 0.95 reached", ""},
		{func(m *wanted.Missed) string { return m.AtLeast("a", "speed", 0.9, 0.95) }, "speed >= 0.95 missed", "a: speed >= 0.95 is missed: it is 0.9"},
		{func(m *wanted.Missed) string { return m.AtMost("a", "ratio", math.NaN(), 2) }, "ratio <= 2 missed", "a: ratio <= 2 is missed: it is NaN"},
	} {
		var m wanted.Missed
		if says := tt.compare(&m); says != tt.says {
			t.Errorf("%q, want %q", says, tt.says)
		}
		if err := m.Err(); (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
			t.Errorf("%s: %v, want %q", tt.says, err, tt.err)
		}
	}
}
