package line

// Position is a position in a limiter's line, over all queues.
type Position struct {
	Part int   // index among the parts
	At   int64 // index in the part's own line
}

// Order returns n positions of a line in the order in which its tasks will be called, beginning
// with the from-th: live parts by their tags and weights, as in share.lua, then the parts of
// queues that nobody runs.
func Order(parts []Part, from, n int64) []Position {
	taken := make([]int64, len(parts))
	var positions []Position
	for i := int64(0); i < from+n; i++ {
		first := -1
		for p := range parts {
			if taken[p] < parts[p].Tasks && (first < 0 || comes(parts, p, taken[p], first, taken[first])) {
				first = p
			}
		}
		if first < 0 {
			break
		}
		if i >= from {
			positions = append(positions, Position{first, taken[first]})
		}
		taken[first]++
	}
	return positions
}

// Before returns how many tasks of a line come before the one at that position.
func Before(parts []Part, s Position) int64 {
	before := s.At
	for p := range parts {
		if p == s.Part {
			continue
		}
		low, high := int64(0), parts[p].Tasks // so many of its tasks come first
		for low < high {
			if mid := (low + high) / 2; comes(parts, p, mid, s.Part, s.At) {
				low = mid + 1
			} else {
				high = mid
			}
		}
		before += low
	}
	return before
}

// comes reports whether the task at i of part a comes before the one at k of part b.
func comes(parts []Part, a int, i int64, b int, k int64) bool {
	pa, pb := parts[a], parts[b]
	if pa.Live != pb.Live {
		return pa.Live
	}
	ta, tb := pa.Tag+float64(i)/pa.Weight, pb.Tag+float64(k)/pb.Weight
	if ta != tb {
		return ta < tb
	}
	return pa.Queue < pb.Queue
}
