package line

import (
	"slices"
	"sort"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// maxKinds bounds how many different requests an outlook tells apart. It does not count the
// others, which only makes its estimates earlier.
const maxKinds = 32

// buckets is BUCKETS in prelude.lua.
const buckets = 256

// outlook estimates the earliest time at which permits can be due for waiters beyond the
// horizon, for whom Redis cannot reserve any yet. The estimate is based on
//
//   - what Redis just told: a time before which no request for as much, or for more, is due,
//   - the reservations of this process, all of which are in the log,
//   - the waiters before this one in the line, if they have a chance themselves. One that asks
//     for no more is due earlier. One that asks for more may be due later, but its permits are
//     reserved first, and are then at most its horizon ahead,
//
// and on what each limit means (earliest). Others can only make the time later, so no
// waiter is refused that has a chance as things stand.
type outlook struct {
	config  []script.Settings
	now     int64      // in us of Redis's clock, like all times here
	told    []told     // by this reply
	ahead   []schedule // of each member
	kinds   []*kind    // those who were counted
	horizon func(ns []int64) time.Duration
}

// told says that no request for ns, or for more, is due before at.
type told struct {
	ns     []int64
	at     int64
	member int // the member that decided
}

// kind is the requests for the same permits.
type kind struct {
	ns    []int64
	count int64 // how many of them wait
	first told  // none of them is due before that
}

// earliest is the earliest time at which a request can be due, and the member that decides
// that.
func (o *outlook) earliest(ns []int64) (at int64, member int) {
	k := o.kind(ns)
	at, member = o.alike(k, k.count)
	for _, j := range o.kinds {
		if j != k && j.count > 0 && !atMost(j.ns, ns) {
			last, m := o.alike(j, j.count-1)
			if last -= o.horizon(j.ns).Microseconds(); last > at {
				at, member = last, m
			}
		}
	}
	if len(o.kinds) == 1 && o.kinds[0] == k {
		return at, member // most lines are like that
	}
	first := k.first.at // those who ask for less may be due before
	for _, j := range o.kinds {
		if atMost(j.ns, ns) {
			first = min(first, j.first.at)
		}
	}
	for i, s := range o.config {
		n := ns[i]
		for _, j := range o.kinds {
			if atMost(j.ns, ns) {
				n += j.count * j.ns[i]
			}
		}
		if t := earliest(&s, first, o.ahead[i], n, 1); t > at {
			at, member = t, i
		}
	}
	return at, member
}

// soonest is the time before which no request for ns is due, whoever is in the line; false if
// Redis has told no such time.
func (o *outlook) soonest(ns []int64) (at int64, member int, told bool) {
	k := o.kind(ns)
	return k.first.at, k.first.member, k.first.at > o.now
}

// alike is when a request is due at the earliest with so many of its own kind before it.
func (o *outlook) alike(k *kind, before int64) (at int64, member int) {
	at, member = k.first.at, k.first.member
	for i, s := range o.config {
		t := earliest(&s, k.first.at, o.ahead[i], (before+1)*k.ns[i], k.ns[i])
		if s.Smooth {
			t = max(t, spaced(&s, k.first.at, before, k.ns[i]))
		}
		if t > at {
			at, member = t, i
		}
	}
	return at, member
}

// count adds a request that waits before those who come next.
func (o *outlook) count(ns []int64) {
	if o.exceeds(ns) {
		return // it is never served
	}
	k := o.kind(ns)
	if k.count++; k.count == 1 && len(o.kinds) < maxKinds {
		o.kinds = append(o.kinds, k)
	}
}

// kind returns those who wait for the same as ns.
func (o *outlook) kind(ns []int64) *kind {
	for _, k := range o.kinds {
		if slices.Equal(k.ns, ns) {
			return k
		}
	}
	k := &kind{ns: ns, first: told{at: o.now}}
	for _, t := range o.told {
		if t.at > k.first.at && atMost(t.ns, ns) {
			k.first = t
		}
	}
	return k
}

// atMost reports whether request a asks for no more of any member than request b.
func atMost(a, b []int64) bool {
	for i := range a {
		if a[i] > b[i] {
			return false
		}
	}
	return true
}

// earliest is the earliest time at which the last of so many permits is available. They are
// for requests of size each, none of which is granted for a time before first, and come on
// top of the reservations that lie ahead. (For requests of different sizes, none larger than
// the last one, size is 1.)
//
// Any stretch of the limit's span holds at most its rate. For calendar windows, that is true
// only of the windows themselves: two bursts may follow each other at the boundary between
// them.
func earliest(s *script.Settings, first int64, ahead schedule, permits, size int64) int64 {
	span, most := s.Span().Microseconds(), s.Rate-s.Rate%size
	if s.Calendar {
		start := first - mod(first-s.Offset, span)
		left := max(s.Rate-(ahead.upTo(start+span-1)-ahead.upTo(start-1)), 0)
		if left -= left % size; permits <= left {
			return first
		}
		return start + s.Guard.Microseconds() + spans(1+(permits-left-1)/most, span)
	}
	windows := (permits - 1) / most
	within := permits - windows*most
	// These permits and the reservations in the same span are together no more than the rate.
	if freed, ok := ahead.nth(ahead.upTo(first) - (s.Rate - within)); ok {
		first = max(first, freed+span)
	}
	return first + spans(windows, span)
}

// spaced is the earliest time at which a smooth limit gives the last of some equal requests:
// each comes n * span / rate after the one before it. In a large log, they may come two buckets
// before that (fit_smooth in windows.lua).
func spaced(s *script.Settings, first, before, n int64) int64 {
	distance := int64(float64(n) * float64(s.Span().Microseconds()) / float64(s.Rate))
	if s.Rate <= buckets {
		return first + spans(before, distance)
	}
	return first + max(0, spans(before+1, distance)-2*s.Span().Microseconds()/buckets)
}

// beyond is longer than any deadline is away, in us.
const beyond = int64(100 * forever / time.Microsecond)

// spans is n * span, at most beyond.
func spans(n, span int64) int64 {
	if span > 0 && n > beyond/span {
		return beyond
	}
	return n * span
}

func mod(a, b int64) int64 { return (a%b + b) % b }

// exceeds reports whether a request is for more than a limit ever gives.
func (o *outlook) exceeds(ns []int64) bool {
	for i, n := range ns {
		if n > o.config[i].Rate {
			return true
		}
	}
	return false
}

// schedule is permits by the time at which they are due.
type schedule struct {
	at  []int64 // ascending
	sum []int64 // of the permits up to and including these
}

// upTo is how many permits are due up to t.
func (p schedule) upTo(t int64) int64 {
	i := sort.Search(len(p.at), func(i int) bool { return p.at[i] > t })
	if i == 0 {
		return 0
	}
	return p.sum[i-1]
}

// nth is when the n-th permit is due, counting from 1.
func (p schedule) nth(n int64) (int64, bool) {
	if n < 1 {
		return 0, false
	}
	i := sort.Search(len(p.sum), func(i int) bool { return p.sum[i] >= n })
	return p.at[i], true
}

// outlook returns what a reply says about those who wait.
func (l *Line) outlook(b *batch, r *script.Reply) *outlook {
	o := &outlook{config: l.config, now: int64(r.Now), ahead: make([]schedule, len(l.config)), horizon: l.horizon}
	for i, run := range b.request.Runs {
		answer := &r.Runs[i]
		switch {
		case run.Prefetch || run.Lead > 0: // it asked for none earlier than that
		case answer.Rest == script.Held || answer.Rest == script.Denied:
			o.told = append(o.told, told{run.Ns, o.now + answer.Wait.Microseconds(), answer.Member})
		}
	}
	for _, w := range l.byDue() {
		at := int64(w.grant.at)
		if at <= o.now {
			continue // somebody's Release may have taken it
		}
		for i, n := range w.ns {
			p := &o.ahead[i]
			if k := len(p.at); k > 0 {
				n += p.sum[k-1]
			}
			p.at, p.sum = append(p.at, at), append(p.sum, n)
		}
	}
	return o
}

// refuseHopeless tells those who wait and cannot be served by their deadlines. Those behind
// them may get a chance from it: who was told no is out of the line.
func (l *Line) refuseHopeless(b *batch, r *script.Reply, received Local) {
	timed := func(w *Waiter) bool { return w.until != 0 }
	if len(l.front)+len(l.returns)+len(l.releases) > 0 || !slices.ContainsFunc(l.waiting, timed) {
		return // the next call follows at once, and may find more
	}
	o := l.outlook(b, r)
	all := l.waiting
	l.waiting = all[:0]
	for _, w := range all {
		at, member, known := int64(0), 0, false
		switch {
		case w.stale > 0 || o.exceeds(w.ns): // Redis has an answer of its own
		case w.now:
			at, member, known = o.soonest(w.ns)
		case timed(w):
			at, member = o.earliest(w.ns)
			known = true
		}
		if earliest, due := l.clock.at(Remote(at)); known && earliest > w.until {
			l.deny(w, due.Sub(received), member)
			continue
		}
		if !w.now {
			o.count(w.ns)
		}
		l.waiting = append(l.waiting, w)
	}
	clear(all[len(l.waiting):])
}
