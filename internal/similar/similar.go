// Package similar finds the names that a misspelt name may mean.
package similar

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// most is how many names are suggested at most.
const most = 3

// Names collects the names that are most like a given one.
type Names struct {
	name string
	near map[string]int // distances
}

// To returns an empty collection for names like this one.
func To(name string) *Names { return &Names{name: name, near: map[string]int{}} }

// Consider adds an existing name if it is similar.
func (n *Names) Consider(other string) {
	furthest := max(len(n.name)/3, 1)
	if other == n.name || max(len(n.name), len(other))-min(len(n.name), len(other)) > furthest {
		return
	}
	if d := distance(strings.ToLower(n.name), strings.ToLower(other)); d <= furthest && d < max(len(n.name), len(other)) {
		n.near[other] = d
	}
	if len(n.near) > 2*most {
		for _, far := range n.nearest()[most:] {
			delete(n.near, far)
		}
	}
}

// String lists the names, quoted: "a" or "b". It is empty if there are none.
func (n *Names) String() string {
	names := n.nearest()
	names = names[:min(len(names), most)]
	for i, name := range names {
		names[i] = strconv.Quote(name)
	}
	return strings.Join(names, " or ")
}

// nearest returns the names by their distance.
func (n *Names) nearest() []string {
	return slices.SortedFunc(maps.Keys(n.near), func(a, b string) int {
		return cmp.Or(cmp.Compare(n.near[a], n.near[b]), strings.Compare(a, b))
	})
}

// Hint is what an error says about a name that does not exist: `: did you mean "a"?`, or
// nothing if no name is similar.
func Hint(name string, there []string) string {
	names := To(name)
	for _, other := range there {
		names.Consider(other)
	}
	if text := names.String(); text != "" {
		return ": did you mean " + text + "?"
	}
	return ""
}

// distance is how many bytes have to be inserted, removed or replaced, or how many pairs of
// neighbours swapped, to get from a to b.
func distance(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1) // of one byte less of a
	last := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last = last, before
		copy(last, row)
		row[0] = i + 1
		for j := range len(b) {
			cost := last[j]
			if a[i] != b[j] {
				cost++
			}
			cost = min(cost, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				cost = min(cost, before[j-1]+1)
			}
			row[j+1] = cost
		}
	}
	return row[len(b)]
}
