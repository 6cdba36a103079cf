package oracle

import (
	"fmt"
	"slices"
)

// TakeBack takes up to n permits of the grant at t out of the log: out of its entry, or out of
// the entries up to the end of its bucket, with which it may have been merged by now. What is in the future is of others.
// If the configuration was changed since, a grant that counts is still where it was, and nothing else is touched. It returns
// what is left, and how many permits it took.
func (log Log) TakeBack(l Limit, t, n, now int64, changed bool) (Log, int64) {
	if changed {
		return log.takeFrom(t, t+1, n)
	}
	return log.takeFrom(t, min(l.BucketEnd(t+1), max(t, now)+1), n)
}

// takeFrom takes up to n permits out of the entries from from on, until before before.
func (log Log) takeFrom(from, before, n int64) (Log, int64) {
	left, taken := slices.Clone(log), int64(0)
	for i, e := range left {
		if e.At >= from && e.At < before {
			x := min(e.Permits, n-taken)
			left[i].Permits -= x
			taken += x
		}
	}
	return left.tidy(), taken
}

// Release takes n permits off the oldest entries that are not in the future.
func (log Log) Release(now, n int64) Log {
	left := slices.Clone(log)
	for i, e := range left {
		if e.At <= now {
			x := min(e.Permits, n)
			left[i].Permits -= x
			n -= x
		}
	}
	return left.tidy()
}

func (log Log) tidy() Log {
	return slices.DeleteFunc(log, func(e Entry) bool { return e.Permits == 0 })
}

// Kept reports how a log differs from the one that is wanted; "" if it does not. In buckets,
// entries that are not in the future may have moved to a later time of their bucket: no window to
// come counts less for that.
func (l Limit) Kept(want, got Log, now int64, buckets bool) string {
	if a, b := want.Sum(), got.Sum(); a != b {
		return fmt.Sprintf("the log holds %d permits, want %d", b, a)
	}
	if !buckets {
		for i := range min(len(want), len(got)) {
			if want[i] != got[i] {
				return fmt.Sprintf("the log has %d at %d, want %d at %d", got[i].Permits, got[i].At, want[i].Permits, want[i].At)
			}
		}
		return ""
	}
	for _, e := range want {
		less, more := want.After(e.At-1).Sum(), got.After(e.At-1).Sum()
		if more < less {
			return fmt.Sprintf("the log has %d permits from %d on, want %d", more, e.At, less)
		}
	}
	for _, e := range got {
		if e.At > now {
			if a, b := want.After(e.At-1).Sum(), got.After(e.At-1).Sum(); a != b {
				return fmt.Sprintf("the log has %d permits ahead from %d on, want %d", b, e.At, a)
			}
			continue
		}
		if a, b := want.After(e.At-l.Bucket()-1).Sum(), got.After(e.At-1).Sum(); b > a {
			return fmt.Sprintf("%d permits moved to %d from more than a bucket before", b-a, e.At)
		}
	}
	return ""
}

// InOrder reports whether the times of equal requests' grants are in the order in which the
// requests came.
func InOrder(times []int64) bool { return slices.IsSorted(times) }
