package hiddenapi

import (
	"testing"
	"time"
)

// ask asks a limit at a time, and says whether it was allowed.
func ask(l *Limit, at time.Duration) bool {
	if !l.Fits(at, 1) {
		return false
	}
	l.Take(at, 1)
	return true
}

func newLimit(t *testing.T, kind Kind, quota int64, offset time.Duration) *Limit {
	t.Helper()
	l, err := NewLimit(kind, quota, time.Second, offset)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Each kind, by what it allows of requests at given times (ms), two in a second.
func TestKinds(t *testing.T) {
	for _, tc := range []struct {
		name    string
		kind    Kind
		offset  time.Duration
		at      []int
		allowed []int
	}{
		{"sliding", Sliding, 0, []int{0, 900, 950, 999, 1000, 1899, 1900}, []int{0, 900, 1000, 1900}},
		{"fixed", Fixed, 0, []int{0, 900, 950, 999, 1000, 1001, 1002, 2000}, []int{0, 900, 1000, 1001, 2000}},
		{"fixed, moved", Fixed, 400 * time.Millisecond, []int{0, 1, 599, 600, 601, 1599, 1600}, []int{0, 1, 600, 601, 1600}},
		{"bucket", Bucket, 0, []int{0, 1, 499, 500, 501, 1000, 5000, 5001, 5002}, []int{0, 1, 500, 1000, 5000, 5001}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLimit(t, tc.kind, 2, tc.offset)
			var allowed []int
			for _, ms := range tc.at {
				at := time.Duration(ms) * time.Millisecond
				wait := l.Wait(at, 1)
				if ok := ask(l, at); ok {
					allowed = append(allowed, ms)
				} else if later := *l; wait <= 0 || !later.Fits(at+wait, 1) {
					t.Errorf("at %d ms: refused, and it would fit after %v", ms, wait)
				}
			}
			if len(allowed) != len(tc.allowed) {
				t.Fatalf("allowed at %v, want %v", allowed, tc.allowed)
			}
			for i := range allowed {
				if allowed[i] != tc.allowed[i] {
					t.Fatalf("allowed at %v, want %v", allowed, tc.allowed)
				}
			}
		})
	}
}

// What was used stays used when the limit changes.
func TestSetQuota(t *testing.T) {
	for _, kind := range []Kind{Sliding, Fixed, Bucket} {
		l := newLimit(t, kind, 10, 0)
		for range 10 {
			ask(l, 0)
		}
		l.SetQuota(5)
		if ask(l, 0) {
			t.Errorf("%s: allows an 11th after its limit was halved", kind)
		}
		l.SetQuota(12)
		if first, second, third := ask(l, 0), ask(l, 0), ask(l, 0); !first || !second || third {
			t.Errorf("%s: does not allow two more, and only two, after it was raised to 12", kind)
		}
	}
}

func TestNewLimitRefuses(t *testing.T) {
	for _, tc := range []struct {
		kind             Kind
		quota            int64
		interval, offset time.Duration
	}{{"leaky", 1, time.Second, 0}, {Sliding, -1, time.Second, 0}, {Sliding, 1, 0, 0}, {Fixed, 1, time.Second, time.Second}} {
		if _, err := NewLimit(tc.kind, tc.quota, tc.interval, tc.offset); err == nil {
			t.Errorf("NewLimit(%+v) is no error", tc)
		}
	}
}
