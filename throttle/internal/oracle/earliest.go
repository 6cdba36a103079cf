package oracle

import (
	"cmp"
	"math"
	"slices"
)

// Ask is a request for n permits of a limit, and what the limit's log holds.
type Ask struct {
	Limit   Limit
	Log     Log
	Permits int64
	Buckets bool // the log is so long that it is kept in buckets
}

// stretch is the times from from on, until before end, at which a request cannot be granted.
type stretch struct{ from, end int64 }

// closed are the stretches in which the limit has no room for the request, in the order of time.
// The ends of calendar windows are missing: next adds them.
func (a Ask) closed() []stretch {
	l := a.Limit
	closed := []stretch{{math.MinInt64, l.Pause}}
	if l.Calendar {
		closed = append(closed, a.fullWindows()...)
	} else {
		// If a window that ends at t holds too much for n more, nothing may be granted at any
		// time that such a window could contain.
		for _, s := range a.overloaded() {
			closed = append(closed, stretch{s.from - l.Span() + 1, s.end})
		}
	}
	if l.Smooth {
		before := int64(math.MinInt64) // an entry keeps its distance to the one before it, and to no other
		for _, e := range a.Log {
			closed = append(closed, stretch{max(e.At-l.distance(e.Permits), before) + 1, e.At + l.distance(a.Permits)})
			before = e.At
		}
	}
	return merge(closed)
}

// overloaded are the times t at which (t-Span, t] holds more than Permits - n.
func (a Ask) overloaded() (over []stretch) {
	type step struct{ at, by int64 }
	var steps []step
	for _, e := range a.Log {
		steps = append(steps, step{e.At, e.Permits}, step{e.At + a.Limit.Span(), -e.Permits})
	}
	slices.SortFunc(steps, func(x, y step) int { return cmp.Compare(x.at, y.at) })
	load := int64(0)
	for i, s := range steps {
		load += s.by
		if load > a.Limit.Permits-a.Permits && i+1 < len(steps) {
			over = append(over, stretch{s.at, steps[i+1].at})
		}
	}
	return merge(over)
}

// fullWindows are the calendar windows that have no room for the request.
func (a Ask) fullWindows() (full []stretch) {
	l := a.Limit
	sum := int64(0)
	for i, e := range a.Log {
		start := l.Start(e.At)
		if i == 0 || l.Start(a.Log[i-1].At) != start {
			sum = 0
		}
		if sum += e.Permits; sum+a.Permits > l.Permits {
			full = append(full, stretch{start, start + l.Interval})
		}
	}
	return full
}

// merge joins stretches that touch.
func merge(ss []stretch) (merged []stretch) {
	slices.SortFunc(ss, func(x, y stretch) int { return cmp.Compare(x.from, y.from) })
	for _, s := range ss {
		switch last := len(merged) - 1; {
		case s.end <= s.from:
		case last >= 0 && s.from <= merged[last].end:
			merged[last].end = max(merged[last].end, s.end)
		default:
			merged = append(merged, s)
		}
	}
	return merged
}

// room is when a request can be granted.
type room struct {
	limit  Limit
	closed []stretch
}

// next is the first time from t on at which there is room.
func (r room) next(t int64) int64 {
	for {
		i, _ := slices.BinarySearchFunc(r.closed, t, func(s stretch, t int64) int {
			if s.end <= t {
				return -1
			}
			return 1
		})
		at := t
		if i < len(r.closed) && r.closed[i].from <= t {
			at = r.closed[i].end
		}
		if r.limit.Calendar {
			// The API's clock is not ours: nothing is granted within guard of a boundary.
			start := r.limit.Start(at)
			at = max(at, start+r.limit.Guard)
			if end := start + r.limit.Interval; at >= end-r.limit.Guard {
				at = end + r.limit.Guard
			}
		}
		if at == t {
			return t
		}
		t = at
	}
}

// Rooms is when a request to several limits at once can be granted.
type Rooms struct {
	asks  []Ask
	rooms []room
}

// Plan works out when these permits are available, all at one time.
func Plan(asks ...Ask) Rooms {
	p := Rooms{asks: asks}
	for _, a := range asks {
		p.rooms = append(p.rooms, room{a.Limit, a.closed()})
	}
	return p
}

// Earliest is the first time from from on at which all limits have room.
func (p Rooms) Earliest(from int64) int64 {
	for t := from; ; {
		at := t
		for _, r := range p.rooms {
			at = r.next(at)
		}
		if at == t {
			return t
		}
		t = at
	}
}

// Fits reports whether all limits have room at t.
func (p Rooms) Fits(t int64) bool { return p.Earliest(t) == t }

// Full are the limits that have no room at t.
func (p Rooms) Full(t int64) (full []int) {
	for i, r := range p.rooms {
		if r.next(t) != t {
			full = append(full, i)
		}
	}
	return full
}

// Late is how much later than the earliest time a grant may be due: the largest bucket of the
// limits that are full just before it.
func (p Rooms) Late(earliest int64) (late int64) {
	for _, i := range p.Full(earliest - 1) {
		if p.asks[i].Buckets {
			late = max(late, p.asks[i].Limit.Bucket())
		}
	}
	return late
}

// Latest is the last time at which a grant may be due: the earliest and a bucket, or, if there is
// no room any more by then, the next one after it.
func (p Rooms) Latest(from int64) int64 {
	t := p.Earliest(from)
	if t == from {
		return t
	}
	for {
		late := t + p.Late(t)
		if t = p.Earliest(late); t == late {
			return t
		}
	}
}
