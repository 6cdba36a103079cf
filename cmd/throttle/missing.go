package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// searchTime bounds the search for a name like the one that was not found.
const searchTime = 2 * time.Second

// maxSimilar is how many names an error suggests.
const maxSimilar = 3

// missing is the error for a name that no limiter has.
func (s *session) missing(ctx context.Context, name string) error {
	if similar := s.similar(ctx, name); similar != "" {
		return fmt.Errorf("no limiter %q in Redis: did you mean %s? throttle list shows all", name, similar)
	}
	return fmt.Errorf("no limiter %q in Redis: throttle list shows all; one appears when a worker applies its configuration, or with throttle set --create", name)
}

// uncreated is the error for a rate that is set on a name that no limiter has.
func (s *session) uncreated(ctx context.Context, name string) error {
	if similar := s.similar(ctx, name); similar != "" {
		return usage("no limiter %q in Redis: did you mean %s? --create makes a new one", name, similar)
	}
	return usage("no limiter %q in Redis: --create makes a new one; throttle list shows those that are there", name)
}

// similar finds the names that are most like this one, those of the configuration
// and of limits with a key among them. They are only a hint: what goes wrong in
// the search is not the user's concern.
func (s *session) similar(ctx context.Context, name string) string {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	furthest := max(len(name)/3, 1)
	near := map[string]int{}
	consider := func(other string) {
		if other == name || abs(len(name)-len(other)) > furthest {
			return
		}
		if d := distance(strings.ToLower(name), strings.ToLower(other)); d <= furthest {
			near[other] = d
		}
	}
	for l, err := range s.fleet.Limiters(ctx, "") {
		if err != nil {
			break
		}
		consider(l.Name)
		if colon := strings.LastIndexByte(l.Name, ':'); colon > 0 {
			consider(l.Name[:colon])
		}
		if len(near) > 2*maxSimilar {
			for _, far := range nearest(near)[maxSimilar:] {
				delete(near, far)
			}
		}
	}
	if s.config != nil {
		for limit := range s.config.Limits {
			consider(limit)
		}
	}
	names := nearest(near)
	names = names[:min(len(names), maxSimilar)]
	for i, n := range names {
		names[i] = strconv.Quote(n)
	}
	return strings.Join(names, " or ")
}

// nearest returns the names by their distance.
func nearest(distances map[string]int) []string {
	return slices.SortedFunc(maps.Keys(distances), func(a, b string) int {
		return cmp.Or(cmp.Compare(distances[a], distances[b]), strings.Compare(a, b))
	})
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
