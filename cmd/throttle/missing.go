package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// searchTime bounds the search for a name like the one that was not found.
const searchTime = 2 * time.Second

// missing is the error for a name that no limiter has.
func (s *session) missing(ctx context.Context, name string) error {
	if similar := s.similar(ctx, name); similar != "" {
		return fmt.Errorf("no limiter %q in Redis: did you mean %q? throttle list shows all", name, similar)
	}
	return fmt.Errorf("no limiter %q in Redis: throttle list shows all; one appears when a worker applies its configuration, or with throttle set", name)
}

// similar finds the limiter whose name is most like this one, if any is. It is
// only a hint: what goes wrong in its search is not the user's concern.
func (s *session) similar(ctx context.Context, name string) string {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	best, nearest := "", max(len(name)/3, 1)+1
	for l, err := range s.fleet.Limiters(ctx, "") {
		if err != nil {
			break
		}
		if abs(len(name)-len(l.Name)) > nearest {
			continue
		}
		d := distance(strings.ToLower(name), strings.ToLower(l.Name))
		if d < nearest || d == nearest && best != "" && l.Name < best {
			best, nearest = l.Name, d
		}
	}
	return best
}

func abs(n int) int { return max(n, -n) }

// distance is how many bytes have to be put in, taken out or replaced to make one of the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
