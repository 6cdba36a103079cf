package throttle

import (
	"math"
	"slices"
	"sort"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// near is how far ahead reservations lie that survive a change of configuration, in us.
const near = int64(100_000)

// entry is permits at a time of Redis's clock, in us.
type entry struct{ at, n int64 }

// model is a limiter that knows only what a limit means: every window holds at most rate. It
// tries each time at which that may become true, and adds up.
type model struct {
	rate, interval, guard, offset int64
	calendar, smooth              bool
	pause                         int64
	crowded                       bool    // grants fall into buckets
	log                           []entry // ascending, one an instant
	sums                          []int64 // of the entries before each
}

// span is how long a grant counts.
func (m *model) span() int64 {
	if m.calendar {
		return m.interval
	}
	return m.interval + m.guard
}

// start is where the calendar window that contains t begins.
func (m *model) start(t int64) int64 {
	return floorDiv(t-m.offset, m.interval)*m.interval + m.offset
}

// cutoff is the latest time whose entries no longer count at t.
func (m *model) cutoff(t int64) int64 {
	if m.calendar {
		return m.start(t) - 1
	}
	return t - m.span()
}

func (m *model) add(at, n int64) {
	i, found := slices.BinarySearchFunc(m.log, at, func(e entry, t int64) int { return int(e.at - t) })
	if found {
		m.log[i].n += n
	} else {
		m.log = slices.Insert(m.log, i, entry{at, n})
	}
	m.sums = nil
}

// sum is the permits in (from, to].
func (m *model) sum(from, to int64) int64 {
	if m.sums == nil {
		m.sums = make([]int64, len(m.log)+1)
		for i, e := range m.log {
			m.sums[i+1] = m.sums[i] + e.n
		}
	}
	until := func(t int64) int { return sort.Search(len(m.log), func(i int) bool { return m.log[i].at > t }) }
	return m.sums[until(to)] - m.sums[until(from)]
}

// fits reports whether n more permits at t keep every window that contains t
// within the rate.
func (m *model) fits(t, n int64) bool {
	return t >= m.pause && m.windowsHold(t, n) && (!m.smooth || m.keepsDistance(t, n))
}

func (m *model) windowsHold(t, n int64) bool {
	if m.calendar {
		start := m.start(t)
		end := start + m.interval
		return t >= start+m.guard && t < end-m.guard && m.sum(start-1, end-1)+n <= m.rate
	}
	return m.busiest(t)+n <= m.rate
}

// busiest is the most permits in any window that contains t.
func (m *model) busiest(t int64) int64 {
	most := m.sum(t-m.span(), t)
	for _, e := range m.log {
		if e.at > t && e.at < t+m.span() {
			most = max(most, m.sum(e.at-m.span(), e.at))
		}
	}
	return most
}

func (m *model) keepsDistance(t, n int64) bool {
	for i, e := range m.log {
		if e.at <= t && t < e.at+m.distance(n) {
			return false
		}
		if e.at > t {
			first := i == 0 || m.log[i-1].at <= t
			return !first || t+m.distance(e.n) <= e.at
		}
	}
	return true
}

// distance is what Smooth keeps before n permits.
func (m *model) distance(n int64) int64 {
	return int64(math.Ceil(float64(n) * float64(m.span()) / float64(m.rate)))
}

// next is the first time after t at which n permits may begin to fit.
func (m *model) next(t, n int64) int64 {
	next := int64(math.MaxInt64)
	consider := func(at int64) {
		if at > t {
			next = min(next, at)
		}
	}
	consider(m.pause)
	if m.calendar {
		consider(m.start(t) + m.guard)
		consider(m.start(t) + m.interval + m.guard)
	}
	for _, e := range m.log {
		consider(e.at + m.span())
		if m.smooth {
			consider(e.at + m.distance(n))
		}
	}
	return next
}

// earliest is the first time from from on at which all models have room; if a model that was full
// just before it is crowded, it is the first end of a bucket of that model. If several models
// were full, it is the wanted end, if that is one.
func earliest(ms []*model, ns []int64, from, wanted int64) int64 {
	t := from
	for {
		fits, next := true, int64(math.MaxInt64)
		for i, m := range ms {
			fits = fits && m.fits(t, ns[i])
			next = min(next, m.next(t, ns[i]))
		}
		if fits {
			break
		}
		t = next
	}
	if t == from {
		return t
	}
	ends, found := t, false
	for i, m := range ms {
		if m.fits(t-1, ns[i]) {
			continue
		}
		end := t
		if m.crowded {
			end = boundary(m.span(), t)
		}
		if end > t {
			end = earliest(ms, ns, end, wanted)
		}
		if !found || end == wanted {
			ends, found = end, true
		}
	}
	return ends
}

// boundary is the first of the grid of span/256 that is not before t.
func boundary(span, t int64) int64 {
	const buckets = 256
	base := floorDiv(t, span) * span
	for i := (t - base) * buckets / span; ; i++ {
		if b := base + ceilDiv(i*span, buckets); b >= t {
			return b
		}
	}
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// ask is a run of equal requests, in us: ARGV of acquire.lua.
type ask struct {
	longest, reach, near, lead, count int64
	ns                                []int64
}

// fate is what becomes of an ask: when its grants are, and what becomes of the rest and after how
// long.
type fate struct {
	times   []int64
	rest    script.Rest
	wait    int64
	members []int // that may be named as the one that decided
}

// serve grants asks in turn, as the script should.
func serve(ms []*model, asks []ask, now int64, replies []script.Outcome) []fate {
	fates := make([]fate, len(asks))
	blocked := false
	for i, a := range asks {
		f := &fates[i]
		over := -1
		for k := len(ms) - 1; k >= 0; k-- {
			if a.ns[k] > ms[k].rate {
				over = k
			}
		}
		switch {
		case over >= 0:
			f.rest, f.members = script.Exceeds, []int{over}
			continue
		case a.longest < 0:
			f.times = slices.Repeat([]int64{now}, int(prefetched(ms, a, now)))
		default:
			f.serve(ms, a, now, &replies[i], &blocked)
			continue
		}
		for _, t := range f.times {
			charge(ms, t, a.ns)
		}
	}
	return fates
}

func (f *fate) serve(ms []*model, a ask, now int64, r *script.Outcome, blocked *bool) {
	from, grid := now+a.lead, int64(0)
	for _, m := range ms {
		from = max(from, m.pause)
		if m.crowded && (grid == 0 || m.span() < grid) {
			grid = m.span()
		}
	}
	if next := boundary(max(grid, 1), from); grid > 0 && a.lead > 0 && next-now <= a.longest && next-from <= a.lead {
		from = next
	}
	given := offsetsOf(r)
	for k := range a.count {
		wanted := r.Wait.Microseconds()
		if int(k) < len(given) {
			wanted = given[k]
		}
		t := earliest(ms, a.ns, from, now+wanted)
		if wait := t - now; wait > a.reach || *blocked && a.longest > 0 {
			f.wait, f.rest = wait, script.Denied
			if wait <= a.longest {
				f.rest, *blocked = script.Held, true
			}
			for i, m := range ms {
				if t == from || grid > 0 || !m.fits(t-1, a.ns[i]) {
					f.members = append(f.members, i)
				}
			}
			return
		}
		charge(ms, t, a.ns)
		f.times = append(f.times, t)
		from = t
	}
}

// offsetsOf are the grants of a run, one by one.
func offsetsOf(r *script.Outcome) []int64 {
	var all []int64
	for _, g := range r.Grants {
		all = append(all, slices.Repeat([]int64{g.Offset}, int(g.Count))...)
	}
	return all
}

func charge(ms []*model, t int64, ns []int64) {
	for i, m := range ms {
		m.add(t, ns[i])
	}
}

// prefetched is how much stock a client gets: as long as half of every limit stays free.
func prefetched(ms []*model, a ask, now int64) int64 {
	count := a.count
	for i, m := range ms {
		if m.smooth || m.calendar || m.pause > now {
			return 0
		}
		left := m.rate - m.sum(m.cutoff(now), math.MaxInt64)
		count = min(count, floorDiv(2*left-m.rate, 2*a.ns[i]))
	}
	return max(count, 0)
}
