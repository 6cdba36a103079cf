package oracle

import (
	"cmp"
	"slices"
)

// Parts is the number of parts of a window in which a long log is kept. If a limit is full, a
// grant may be moved to the end of such a part, its bucket.
const Parts = 256

// Limit is at most Permits in every window.
type Limit struct {
	Permits         int64
	Interval, Guard int64
	PerClient       bool  // each client has a log of its own
	Smooth          bool  // grants keep a distance that depends on their permits
	Calendar        bool  // windows begin at Offset and at each Interval before and after it
	Offset          int64 // of calendar windows
	Pause           int64 // nothing is granted before
}

// Entry is Permits granted for the time At.
type Entry struct{ At, Permits int64 }

// Log is what a limit granted, in the order of time. Entries in the future are reservations.
type Log []Entry

// Span is how long an entry of a log counts. In calendar windows it counts until its window ends;
// then Span is the length of a window.
func (l Limit) Span() int64 {
	if l.Calendar {
		return l.Interval
	}
	return l.Interval + l.Guard
}

// Start is where the calendar window that contains t begins.
func (l Limit) Start(t int64) int64 { return floorDiv(t-l.Offset, l.Interval)*l.Interval + l.Offset }

// Cutoff is the latest time whose entries no longer count at t.
func (l Limit) Cutoff(t int64) int64 {
	if l.Calendar {
		return l.Start(t) - 1
	}
	return t - l.Span()
}

// Horizon is how far ahead a reservation may lie, for whatever number of permits: an interval, or
// a second if that is more, and twice the time for all permits of the limit, and a bucket.
func (l Limit) Horizon() int64 {
	return max(l.Interval, 1_000_000) + 2*l.Span() + l.Bucket()
}

// Bucket is the length of a bucket, rounded up.
func (l Limit) Bucket() int64 { return (l.Span() + Parts - 1) / Parts }

// BucketEnd is the first end of a bucket that is not before t.
func (l Limit) BucketEnd(t int64) int64 {
	base := floorDiv(t, l.Span()) * l.Span()
	for i := (t - base) * Parts / l.Span(); ; i++ {
		if end := base + (i*l.Span()+Parts-1)/Parts; end >= t {
			return end
		}
	}
}

// distance is what Smooth keeps between a grant of n permits and the grant before it.
func (l Limit) distance(n int64) int64 {
	return (n*l.Span() + l.Permits - 1) / l.Permits
}

// Sum is the permits of a log.
func (log Log) Sum() (n int64) {
	for _, e := range log {
		n += e.Permits
	}
	return n
}

// After is the part of a log later than t.
func (log Log) After(t int64) Log { return log[log.above(t):] }

// Until is the part of a log that is not later than t.
func (log Log) Until(t int64) Log { return log[:log.above(t)] }

// above is how many entries are not later than t.
func (log Log) above(t int64) int {
	i, _ := slices.BinarySearchFunc(log, t+1, func(e Entry, t int64) int { return cmp.Compare(e.At, t) })
	return i
}

// With is a log with n more permits at t.
func (log Log) With(t, n int64) Log {
	i := log.above(t)
	if i > 0 && log[i-1].At == t {
		log = slices.Clone(log)
		log[i-1].Permits += n
		return log
	}
	return slices.Insert(slices.Clone(log), i, Entry{t, n})
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
