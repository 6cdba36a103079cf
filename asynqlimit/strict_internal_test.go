package asynqlimit

import (
	"fmt"
	"testing"
)

// TestStrictWeight: a queue of a strict server has many times the weight of those below it, with up to ten different weights.
func TestStrictWeight(t *testing.T) {
	for ranks, least := range map[int]int64{1: 0, 2: 1000, 5: 1000, 6: 250, 7: 99, 10: 20} {
		weights := map[string]int{"same": 1}
		for i := range ranks {
			weights[fmt.Sprint(i)] = 1 + i
		}
		if a, b := strictWeight(weights, "same"), strictWeight(weights, "0"); a != 1 || b != 1 {
			t.Errorf("%d weights: the lowest are %d and %d", ranks, a, b)
		}
		for i := 1; i < ranks; i++ {
			below, w := strictWeight(weights, fmt.Sprint(i-1)), strictWeight(weights, fmt.Sprint(i))
			if w < below*least || w > 1_000_000_000_000 {
				t.Errorf("%d weights: %d above %d, want %d times that", ranks, w, below, least)
			}
		}
	}
}
