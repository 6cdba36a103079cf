package throttle_test

import (
	"math"
	"slices"
)

// zone is all the values that some times may have, given how far apart they are:
// for each two of them, the most by which the first comes after the second. Its time 0 is the
// beginning. The bounds are as tight as they imply each other, so that equal zones have equal
// bounds. A zone does not change; operations return another.
type zone struct {
	size   int
	bounds []int64 // size x size
}

const unbounded = math.MaxInt64 / 4

// newZone has the beginning and n times that coincide with it.
func newZone(n int) zone { return zone{n + 1, make([]int64, (n+1)*(n+1))} }

func (z zone) at(i, j int) int64 { return z.bounds[i*z.size+j] }

func (z zone) clone() zone { return zone{z.size, slices.Clone(z.bounds)} }

// within leaves the values for which time i comes at most d after time j. It reports false if
// there are none.
func (z zone) within(i, j int, d int64) (zone, bool) {
	switch {
	case z.at(j, i)+d < 0:
		return zone{}, false
	case z.at(i, j) <= d:
		return z, true
	}
	tight := z.clone()
	for a := range z.size {
		for b := range z.size {
			if through := z.at(a, i) + d + z.at(j, b); through < tight.at(a, b) {
				tight.bounds[a*z.size+b] = through
			}
		}
	}
	return tight, true
}

// later lets time i be any amount later than it is.
func (z zone) later(i int) zone {
	z = z.clone()
	for j := range z.size {
		if j != i {
			z.bounds[i*z.size+j] = unbounded
		}
	}
	return z
}

// with adds a time, the last, that coincides with time i.
func (z zone) with(i int) zone {
	more := zone{z.size + 1, make([]int64, 0, (z.size+1)*(z.size+1))}
	for a := range z.size {
		more.bounds = append(more.bounds, z.bounds[a*z.size:(a+1)*z.size]...)
		more.bounds = append(more.bounds, z.at(a, i))
	}
	more.bounds = append(more.bounds, z.bounds[i*z.size:(i+1)*z.size]...)
	more.bounds = append(more.bounds, 0)
	return more
}

// without forgets time i, but nothing of what it implies for the others.
func (z zone) without(i int) zone {
	less := zone{size: z.size - 1}
	for a := range z.size {
		if a != i {
			row := z.bounds[a*z.size : (a+1)*z.size]
			less.bounds = append(append(less.bounds, row[:i]...), row[i+1:]...)
		}
	}
	return less
}

func (z zone) equal(other zone) bool { return slices.Equal(z.bounds, other.bounds) }

func (z zone) hash() uint64 {
	const prime = 0x100000001b3 // of FNV-1a
	h := uint64(0xcbf29ce484222325)
	for _, b := range z.bounds {
		h = (h ^ uint64(b)) * prime
	}
	return h
}
