package line

import (
	"testing"
	"time"
)

func TestMeterIsOfTheLastSpan(t *testing.T) {
	const span = 32 * time.Millisecond // a part is a millisecond
	var u meter
	const begin = Local(time.Hour)
	at := func(n float64) Local { return begin.Add(time.Duration(n * float64(time.Millisecond))) }
	for i, step := range []struct {
		at   float64
		had  int64
		want int64
	}{
		{0, 5, 5}, {0.5, 1, 6}, {31, 2, 8}, {31.9, 0, 8},
		{32, 0, 2}, // all of part 0 is over
		{40, 7, 9}, {62.9, 0, 9}, {63, 0, 7}, {71.9, 0, 7}, {72, 0, 0},
		{100, 3, 3}, {1000, 4, 4}, {999, 1, 5},
	} {
		if step.had > 0 {
			u.add(step.had, span, at(step.at))
		}
		if got := u.lately(at(step.at)); got != step.want {
			t.Errorf("step %d, at %v ms: %d, want %d", i, step.at, got, step.want)
		}
	}
	u.add(1, 2*span, at(1000)) // another configuration
	if got := u.lately(at(1000)); got != 1 {
		t.Errorf("%d after the limit changed, want 1", got)
	}
}
